from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest
from h2.events import RemoteSettingsChanged

from fastlane.emulator import Dialect, Emulator, preset
from tests.emulator.requests import chat, raw_http2


@pytest.fixture(scope="module")
def narrow() -> Iterator[Emulator]:
    dialect = Dialect(initial_window_bytes=20_000, max_concurrent_streams=3)
    with Emulator(model=replace(preset("instant"), dialect=dialect)) as emulator:
        yield emulator


def announced(emulator: Emulator) -> tuple[int, int, int]:
    """The stream window, the connection window and the streams that a server announces."""
    with raw_http2(emulator) as raw:
        # The server's settings and its first credit come in one write; the acknowledgement of ours comes later.
        raw.read_until(lambda event: isinstance(event, RemoteSettingsChanged))
        settings = raw.h2.remote_settings
        return settings.initial_window_size, raw.h2.outbound_flow_control_window, settings.max_concurrent_streams


def test_windows_that_were_set_are_announced(narrow: Emulator) -> None:
    assert announced(narrow) == (20_000, 65_535, 3)


def test_by_default_no_upload_waits_for_a_window(emulator: Emulator) -> None:
    assert announced(emulator) == (16 * 1_048_576, 16 * 1_048_576, 100)


def test_body_larger_than_the_window_comes_in_whole(narrow: Emulator) -> None:
    context = ssl.create_default_context(cafile=str(narrow.certificate_authority))
    headers = {"authorization": "Bearer any"}
    with httpx2.Client(base_url=narrow.base_url, http2=True, verify=context, headers=headers, timeout=40) as client:
        answer = client.post("/chat/completions", json=chat("x" * 250_000))

    assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
    assert narrow.log()[-1].bytes_in > 250_000

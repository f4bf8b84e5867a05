from __future__ import annotations

import httpx2
import pytest
from h2.events import RemoteSettingsChanged

from fastlane.emulator import Emulator
from tests.emulator.requests import chat, raw_http2


def announced(emulator: Emulator) -> tuple[int, int, int]:
    """The stream window, the connection window and the streams that a server announces."""
    with raw_http2(emulator) as raw:
        # The server's settings and its first credit come in one write; the acknowledgement of ours comes later.
        raw.read_until(lambda event: isinstance(event, RemoteSettingsChanged))
        settings = raw.h2.remote_settings
        return settings.initial_window_size, raw.h2.outbound_flow_control_window, settings.max_concurrent_streams


@pytest.mark.parametrize("protocol", ["HTTP/2"])
def test_windows_that_were_set_are_announced_and_kept(emulator: Emulator, http: httpx2.Client) -> None:
    emulator.change(dialect={"initial_window_bytes": 20_000, "max_concurrent_streams": 3})

    assert announced(emulator) == (20_000, 65_535, 3)
    assert http.post("/chat/completions", json=chat("x" * 250_000)).status_code == 200
    assert emulator.log()[-1].bytes_in > 250_000


def test_by_default_no_upload_waits_for_a_window(emulator: Emulator) -> None:
    assert announced(emulator) == (16 * 1_048_576, 16 * 1_048_576, 100)

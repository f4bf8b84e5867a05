"""The pytest plugin of fastlane: a fixture that imports the SDK only where a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastlane.emulator import Emulator


@pytest.fixture(scope="session")
def _running_fastlane_emulator() -> Iterator[Emulator]:
    from fastlane.emulator import Emulator, preset

    # Without TLS, so that a client needs no certificate and fastlane no extra.
    with Emulator(model=preset("instant"), tls=False) as emulator:
        yield emulator


@pytest.fixture
def fastlane_emulator(_running_fastlane_emulator: Emulator) -> Emulator:
    """An OpenAI-compatible provider on this machine, in the state of its start for each test.

    `base_url` and `api_key` are for clients; `set_answers`, `set_faults` and `change` script it; `log` returns what it
    saw. It runs in a process of its own, which is started once in a session.
    """
    _running_fastlane_emulator.reset()
    return _running_fastlane_emulator

"""Gates are kept by address: forget them between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.plays.urgency.admission._registry import gates


@pytest.fixture(autouse=True)
def no_gate_is_known() -> Iterator[None]:
    gates.clear()
    yield
    gates.clear()

"""Gates are kept by address: forget them between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.plays.urgency.admission import _registry


@pytest.fixture(autouse=True)
def no_gate_is_known() -> Iterator[None]:
    _registry.clear()
    yield
    _registry.clear()

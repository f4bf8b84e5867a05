"""Queues are kept by address: forget them between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.plays.rate_limits.queue import queues


@pytest.fixture(autouse=True)
def no_queue_is_known() -> Iterator[None]:
    queues.clear()
    yield
    queues.clear()

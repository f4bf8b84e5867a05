from __future__ import annotations

from typing import Any

import pytest

from tests.transport.callers import CALLERS


@pytest.fixture(params=CALLERS)
def make_caller(request: pytest.FixtureRequest) -> Any:
    """The synchronous caller, and the asynchronous one."""
    return CALLERS[request.param]

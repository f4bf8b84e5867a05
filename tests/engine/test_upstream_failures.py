"""Why an upstream failed, by a response's status."""

from __future__ import annotations

import pytest

from fastlane.engine.upstream_failures import failure_of_status

WHY = {
    **dict.fromkeys((401, 402, 403, 404), "denied"),
    **dict.fromkeys((429, 498), "rate_limit"),
    **dict.fromkeys((409, 500, 502, 503, 529), "server"),
    408: "timeout",
}


@pytest.mark.parametrize("status", [200, 400, *WHY, 413, 422])
def test_status_code_maps_to_a_failure_reason(status: int) -> None:
    assert failure_of_status(status) == WHY.get(status)


@pytest.mark.parametrize("code", ["context_length_exceeded", "string_above_max_length"])
def test_too_long_prompt_is_a_reason_to_fall_back(code: str) -> None:
    assert failure_of_status(400, code) == "too_long"
    assert failure_of_status(400, "invalid_value") is None

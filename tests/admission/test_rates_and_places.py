"""A refusal that a limit per time explains is no lesson in places."""

from __future__ import annotations

import pytest

from fastlane.admission import AdmissionSettings, Gate, Permit, gate_of

SETTINGS = AdmissionSettings()
SPENT = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
}


def entered(gate: Gate) -> Permit:
    return gate.enter("interactive", SETTINGS, tokens=10, most_wait_s=60)


@pytest.mark.parametrize(
    ("status", "headers", "is_learning"),
    [
        (429, SPENT, True),
        (429, {"retry-after": "1"}, True),
        (429, {**SPENT, "x-ratelimit-remaining-requests": "500", "retry-after-ms": "20"}, True),
        (429, {}, False),
        (503, {}, False),
    ],
)
def test_only_what_no_limit_per_time_explains_teaches_of_places(
    status: int, headers: dict[str, str], is_learning: bool
) -> None:
    gate = gate_of("https://api.example.com", b"account", "model", SETTINGS)
    permits = [entered(gate) for _ in range(8)]
    for permit in permits[4:]:
        permit.answered(status, headers)
    state = gate.state()
    assert state.learning is is_learning
    for permit in permits:
        permit.leave()

"""A refusal that a limit per time explains is no lesson in places."""

from __future__ import annotations

import pytest

from fastlane.plays.urgency.admission import AdmissionSettings, gate_of
from tests.admission.entering import entered

SETTINGS = AdmissionSettings()
SPENT = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
}


@pytest.mark.parametrize(
    ("status", "headers", "teaches"),
    [
        (429, SPENT, False),
        (429, {"retry-after": "1"}, False),
        (429, {**SPENT, "x-ratelimit-remaining-requests": "500", "retry-after-ms": "20"}, False),
        (429, {}, True),
        (503, {}, True),
    ],
)
def test_only_what_no_limit_per_time_explains_teaches_of_places(
    status: int, headers: dict[str, str], teaches: bool
) -> None:
    gate = gate_of("https://api.example.com", b"account", "model", SETTINGS)
    permits = [entered(gate, SETTINGS) for _ in range(8)]
    for permit in permits[4:]:
        permit.answered(status, headers)
    assert (gate.state().limit is not None) is teaches
    for permit in permits:
        permit.release()

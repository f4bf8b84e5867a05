"""The labels of metrics take a limited number of values each, whatever an application calls its things."""

from __future__ import annotations

from typing import Any

from fastlane.telemetry import ExperimentArm
from fastlane.telemetry.metrics import MOST_VALUES, OTHER, Measures
from tests.telemetry.measuring import attempt, ended, ended_action, record


def labels_of(measures: Measures, **call: Any) -> dict[str, Any]:
    """The labels of a call's duration."""
    made = ended(record(**call))
    (labels,) = [labels for name, _, labels in measures.of(made) if name == "gen_ai.client.operation.duration"]
    return labels


def test_made_up_models_and_servers_share_one_label() -> None:
    measures, labeled = Measures(), []
    for number in range(MOST_VALUES + 50):
        origin = f"https://tenant-{number}.example.com:443"
        labeled.append(labels_of(measures, model=f"ft:{number}", attempts=(attempt(model=None, origin=origin),)))

    for label in ("gen_ai.request.model", "server.address"):
        found = {labels[label] for labels in labeled}
        assert len(found) == MOST_VALUES + 1
        assert OTHER in found
    # A port says nothing without its host.
    assert all(("server.port" in labels) == (labels["server.address"] != OTHER) for labels in labeled)
    # Known values stay.
    assert labels_of(measures, model="ft:7", attempts=(attempt(model=None),))["gen_ai.request.model"] == "ft:7"


def test_names_of_actions_and_arms_are_limited_too() -> None:
    measures, labeled = Measures(), []
    for number in range(MOST_VALUES + 5):
        action = ended_action(f"ticket {number}", arm=ExperimentArm(name="e", arm=f"arm {number}"))
        labeled += [labels for _, _, labels in measures.of(action)]

    for label in ("fastlane.interaction.name", "fastlane.experiment.arm"):
        assert len({labels[label] for labels in labeled}) == MOST_VALUES + 1

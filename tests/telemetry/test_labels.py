from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from fastlane.telemetry import ExperimentArm
from fastlane.telemetry.metrics import MOST_VALUES, OTHER, EndedAction, LabelValues, Measures
from tests.telemetry.measuring import attempt, ended, record

values = st.one_of(st.text(max_size=200), st.none(), st.integers(), st.lists(st.text()))


@given(inputs=st.lists(values, max_size=60), most=st.integers(min_value=1, max_value=20))
def test_label_takes_so_many_values_and_no_more(inputs: list[Any], most: int) -> None:
    labels = LabelValues(most)
    first = [labels.limited("model", value) for value in inputs]

    assert len({*first} - {OTHER}) <= most
    assert all(made in (value, OTHER) for value, made in zip(inputs, first, strict=True))
    known = {made for made in first if made != OTHER}
    assert all(labels.limited("model", value) == value for value in known)


def test_label_does_not_take_from_anothers_values() -> None:
    labels = LabelValues(1)

    assert [labels.limited("model", "m"), labels.limited("arm", "on")] == ["m", "on"]
    assert [labels.limited("model", "n"), labels.limited("arm", "off")] == [OTHER, OTHER]


def test_too_long_label_value_becomes_other() -> None:
    assert LabelValues().limited("model", "m" * 129) == OTHER


def test_made_up_models_and_servers_share_one_label() -> None:
    measures = Measures()
    labeled = []
    for number in range(MOST_VALUES + 50):
        origin = f"https://tenant-{number}.example.com:443"
        call = ended(record(model=f"ft:{number}", attempts=(attempt(model=None, origin=origin),)))
        labeled += [labels for name, _, labels in measures.of(call) if name == "gen_ai.client.operation.duration"]

    assert len(labeled) == MOST_VALUES + 50
    for label in ("gen_ai.request.model", "server.address"):
        found = {labels[label] for labels in labeled}
        assert len(found) == MOST_VALUES + 1
        assert OTHER in found
    # A port says nothing without its host.
    assert all(("server.port" in labels) == (labels["server.address"] != OTHER) for labels in labeled)


def test_names_of_actions_and_arms_are_limited_too() -> None:
    measures, labeled = Measures(), []
    for number in range(MOST_VALUES + 5):
        action = EndedAction(f"ticket {number}", 1.0, None, None, ExperimentArm(name="e", arm=f"arm {number}"))
        labeled += [labels for _, _, labels in measures.of(action)]

    for label in ("fastlane.interaction.name", "fastlane.experiment.arm"):
        assert len({labels[label] for labels in labeled}) == MOST_VALUES + 1

"""What a model does not take does not reach it, and the record of the call says what was changed for it."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane import Routing
from fastlane.catalog import Catalog
from tests.attempts.scripted import KINDS, MESSAGES, Asked, Upstream, answer, model_at, refuse

pytestmark = pytest.mark.usefixtures("trusting_peers")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [False, True])
def test_record_lists_adaptations_for_the_answering_model(
    kind: str, fails: bool, running: tuple[Upstream, Upstream]
) -> None:
    near, far = running
    for one in running:
        one.asked.clear()
        one.usually = answer(f"from {one.name}")
    near.scripts[:] = [refuse(503)] if fails else []
    taken = {"temperature": False, "max_tokens": False, "reasoning_effort": True}
    catalog = Catalog(
        models=(
            model_at(near, first_token_s=0.01, parameters=taken),
            model_at(far, first_token_s=0.5, max_output_tokens=40, parameters={"reasoning_effort": ["low", "high"]}),
        )
    )
    given: dict[str, Any] = {
        "temperature": 0.125, "max_tokens": 60, "reasoning_effort": "medium", "user": "a-user", "top_p": 0.9,
    }  # fmt: skip
    with Asked(kind, near.url, Routing(catalog, exploration=0.0, streams=False)) as client:
        assert client.text(**given, extra_body={"top_k": 7}) == f"from {'far' if fails else 'near'}"
        record: Any = client.record

    took_near, took_far = (
        {"model": "near-1", "messages": MESSAGES, "max_completion_tokens": 60, "reasoning_effort": "medium"},
        {"model": "far-1", "messages": MESSAGES, "max_tokens": 40, "temperature": 0.125},
    )
    assert near.asked == [{**took_near, "top_p": 0.9, "stream": False}]
    if fails:
        assert far.asked == [{**took_far, "top_p": 0.9, "stream": False}]
        expected = (
            "left out user, top_k, which far is not known to take",
            "lowered max_tokens to the most that far takes",
            "left out reasoning_effort, which far does not take",
        )
    else:
        expected = (
            "left out user, top_k, which near is not known to take",
            "bounded the answer by max_completion_tokens, as near takes it",
            "left out temperature, which near does not take",
        )
    assert record.changes[: len(expected)] == expected
    assert not any(value in str(record.changes) for value in ("0.125", "a-user"))
    assert record.routing.model == ("far" if fails else "near")

from __future__ import annotations

import pytest

from fastlane.doctor._bodies import FORMS, Outcome, judge, judge_form
from fastlane.doctor._findings import MeasuredFact


@pytest.mark.parametrize(
    ("expected", "counted", "status", "outcome"),
    [
        (20, 20, 200, "taken"),
        (20, 2, 200, "misread"),
        (None, 20, 200, "undecided"),
        (20, None, 200, "undecided"),
        (20, None, 415, "refused"),
        (20, None, 400, "refused"),
        (20, None, 429, "undecided"),
        (20, None, 401, "undecided"),
        (20, None, 407, "undecided"),
        (20, None, 500, "broken"),
        (20, None, "ReadTimeout", "broken"),
    ],
)
def test_an_encoded_call_is_compared_with_its_plain_twin(
    expected: int | None, counted: int | None, status: int | str, outcome: Outcome
) -> None:
    assert judge_form(expected, counted, status)[0] == outcome


def judged(*outcomes: Outcome) -> tuple[str, dict[str, MeasuredFact]]:
    forms = {form: (outcome, outcome) for form, outcome in zip(FORMS, outcomes, strict=True)}
    finding = judge("/chat/completions", forms, "application/vnd.msgpack")
    return finding.seen, {".".join(fact.path): fact for fact in finding.facts}


def test_the_forms_that_are_taken_become_facts() -> None:
    seen, facts = judged("taken", "refused", "refused")

    assert seen == "json+gzip taken; msgpack, msgpack+gzip refused"
    assert {path: fact.value for path, fact in facts.items()} == {"encodings./chat/completions": ["json", "json+gzip"]}
    assert facts["encodings./chat/completions"].is_whole


def test_with_messagepack_its_content_type_is_a_fact_too() -> None:
    assert judged("taken", "taken", "taken")[1]["media_types.msgpack"].value == "application/vnd.msgpack"


def test_where_all_are_refused_that_is_a_fact() -> None:
    assert judged("refused", "refused", "refused")[1]["encodings./chat/completions"].value == ["json"]


@pytest.mark.parametrize("outcome", ["undecided", "broken"])
def test_a_fact_names_the_forms_that_are_not_known(outcome: Outcome) -> None:
    fact = judged("taken", outcome, "refused")[1]["encodings./chat/completions"]

    assert fact.value == ["json", "json+gzip"]
    assert fact.note == "unknown: msgpack"
    assert not fact.is_whole


def test_where_no_form_is_taken_and_one_is_unknown_there_is_no_fact() -> None:
    assert judged("refused", "undecided", "refused")[1] == {}

from __future__ import annotations

import pytest

from fastlane.doctor._findings import lasting
from fastlane.doctor._forms import CHAT, FORMS, Outcome, Outcomes, compare, judge, writing_for
from fastlane.providers import facts_named


@pytest.mark.parametrize(
    ("expected", "counted", "status", "outcome"),
    [
        (20, 20, 200, "accepted"),
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
    assert compare(expected, counted, status)[0] == outcome


def outcomes_of(*outcomes: Outcome) -> Outcomes:
    forms = {form: (outcome, "Because.") for form, outcome in zip(FORMS, outcomes, strict=True)}
    return Outcomes(endpoint=CHAT, forms=forms)


def judged(*outcomes: Outcome, before: Outcomes | None = None) -> tuple[str, dict[str, object]]:
    finding = judge(outcomes_of(*outcomes), writing_for(None), tokens=before is not None, before=before)
    return finding.seen, {".".join(fact.path): fact.value for fact in finding.facts}


def test_the_forms_that_are_taken_become_facts() -> None:
    seen, facts = judged("accepted", "refused", "broken")

    assert seen == "json+gzip taken; msgpack refused; msgpack+gzip broken: Because"
    assert facts == {"encodings./chat/completions": ["json", "json+gzip"]}


def test_with_messagepack_its_content_type_is_a_fact_too() -> None:
    assert judged("accepted", "accepted", "accepted")[1]["media_types.msgpack"] == "application/vnd.msgpack"


def test_where_all_are_refused_that_is_a_fact() -> None:
    assert judged("refused", "refused", "refused")[1] == {"encodings./chat/completions": ["json"]}


@pytest.mark.parametrize("outcome", ["undecided", "broken"])
def test_what_was_taken_is_a_fact_that_names_what_could_not_be_told(outcome: Outcome) -> None:
    finding = judge(outcomes_of("accepted", outcome, "refused"), writing_for(None), tokens=False)

    (fact,) = finding.facts
    assert fact.value == ["json", "json+gzip"]
    assert "not to be told: msgpack" in fact.note
    assert not fact.is_whole


@pytest.mark.parametrize("outcome", ["undecided", "broken"])
def test_where_nothing_was_taken_and_one_could_not_be_told_there_is_no_fact(outcome: Outcome) -> None:
    assert judged("refused", outcome, "refused")[1] == {}
    assert judged(outcome, outcome, outcome)[1] == {}


def test_why_it_could_not_be_told_is_said() -> None:
    assert judged("undecided", "undecided", "refused")[0] == (
        "json+gzip, msgpack not to be told: Because; msgpack+gzip refused"
    )


def test_a_form_that_reads_otherwise_is_refused_for_good() -> None:
    assert judged("accepted", "misread", "refused")[1] == {"encodings./chat/completions": ["json", "json+gzip"]}


def test_a_call_too_many_leaves_standing_what_was_found_out_before() -> None:
    free = outcomes_of("accepted", "refused", "refused")

    assert judged("undecided", "undecided", "undecided", before=free)[1] == {
        "encodings./chat/completions": ["json", "json+gzip"]
    }


def test_calls_that_fail_take_back_what_was_found_out_before() -> None:
    free = judge(outcomes_of("accepted", "refused", "refused"), writing_for(None), tokens=False)
    paid = judge(
        outcomes_of("broken", "refused", "refused"),
        writing_for(None),
        tokens=True,
        before=outcomes_of("accepted", "refused", "refused"),
    )

    assert ("encodings", CHAT) in lasting([free])
    assert lasting([free, paid]) == {}


def test_the_content_type_is_the_one_that_is_written_down() -> None:
    written = facts_named("openai").model_validate(
        {
            "slug": "other",
            "media_types": {
                "msgpack": {
                    "value": "application/x-msgpack",
                    "source": "https://a.example",
                    "checked": "2026-11-22",
                    "evidence": "documented",
                }
            },
        },
        strict=False,
    )

    assert writing_for(written).msgpack_type == "application/x-msgpack"

from __future__ import annotations

import pytest

from fastlane.doctor._forms import CHAT, FORMS, Outcome, Outcomes, compare, encode_for, judge
from fastlane.providers import facts_named


@pytest.mark.parametrize(
    ("expected", "counted", "status", "outcome"),
    [
        (20, 20, 200, "accepted"),
        (20, 2, 200, "broken"),
        (None, 20, 200, "undecided"),
        (20, None, 200, "undecided"),
        (20, None, 415, "refused"),
        (20, None, 400, "refused"),
        (20, None, 429, "undecided"),
        (20, None, 401, "undecided"),
        (20, None, 500, "broken"),
        (20, None, "ReadTimeout", "broken"),
    ],
)
def test_an_encoded_call_is_compared_with_its_plain_twin(
    expected: int | None, counted: int | None, status: int | str, outcome: Outcome
) -> None:
    assert compare(expected, counted, status)[0] == outcome


def judged(*outcomes: Outcome) -> tuple[str, dict[str, object]]:
    forms = {form: (outcome, "Because.") for form, outcome in zip(FORMS, outcomes, strict=True)}
    finding = judge(Outcomes(endpoint=CHAT, forms=forms), encode_for(None), tokens=False)
    return finding.seen, {".".join(fact.path): fact.value for fact in finding.facts}


def test_the_forms_that_are_taken_become_facts() -> None:
    seen, facts = judged("accepted", "refused", "broken")

    assert seen == "json+gzip taken; msgpack refused; msgpack+gzip broken: Because"
    assert facts == {"encodings./chat/completions": ["json", "json+gzip"]}


def test_with_messagepack_its_content_type_is_a_fact_too() -> None:
    assert judged("accepted", "accepted", "accepted")[1]["media_types.msgpack"] == "application/vnd.msgpack"


def test_where_all_are_refused_that_is_a_fact() -> None:
    assert judged("refused", "refused", "refused")[1] == {"encodings./chat/completions": ["json"]}


def test_where_one_could_not_be_told_nothing_is_claimed_of_the_others() -> None:
    assert judged("accepted", "undecided", "refused")[1] == {}


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

    assert encode_for(written).msgpack_type == "application/x-msgpack"

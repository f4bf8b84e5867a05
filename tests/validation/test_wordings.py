from __future__ import annotations

from typing import Literal

import pydantic
import pytest

from fastlane.plays.bounded_output.progress._json_progress import JsonProgress
from fastlane.plays.bounded_output.progress._nodes import compile_schema
from fastlane.plays.bounded_output.validation._validation import problem_of, validator


class Step(pydantic.BaseModel, extra="forbid"):
    team: Literal["payments", "platform"]
    hours: float = pydantic.Field(gt=0, lt=10)


class Ticket(pydantic.BaseModel, extra="forbid"):
    category: Literal["billing", "bug", "Störung"]
    kind: Literal["ticket"] = "ticket"
    priority: int = pydantic.Field(ge=1, le=5)
    summary: str = pydantic.Field(min_length=2, max_length=8)
    steps: list[Step] = pydantic.Field(min_length=1, max_length=2)
    urgent: bool = False


SCHEMA = Ticket.model_json_schema()
REST = '"priority": 1, "summary": "abc", "steps": [{"team": "payments", "hours": 1}]'


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (f'{{"category": "other", {REST}}}', "category: not one of the allowed values"),
        (f'{{"category": 1, {REST}}}', "category: not one of the allowed values"),
        (f'{{"category": "bug", "kind": "case", {REST}}}', "kind: not one of the allowed values"),
        (f'{{"category": "bug", "made up": 1, {REST}}}', "$: properties that the schema does not allow"),
        (f"{{{REST}}}", '$: "category" is missing'),
        ('{"category": "bug", "summary": "abc"}', '$: "priority", "steps" are missing'),
        (f'{{"category": "bug", {REST}, "priority": 6}}', "priority: above the maximum of 5"),
        (f'{{"category": "bug", {REST}, "priority": 0}}', "priority: below the minimum of 1"),
        (f'{{"category": "bug", {REST}, "priority": 1.5}}', "priority: not of the type integer"),
        (f'{{"category": "bug", {REST}, "priority": []}}', "priority: not of the type integer"),
        (f'{{"category": "bug", {REST}, "summary": "far too long"}}', "summary: longer than 8 characters"),
        (f'{{"category": "bug", {REST}, "summary": ""}}', "summary: shorter than 2 characters"),
        (f'{{"category": "bug", {REST}, "summary": 5}}', "summary: not of the type string"),
        (f'{{"category": "bug", {REST}, "steps": {{}}}}', "steps: not of the type array"),
        (f'{{"category": "bug", {REST}, "steps": []}}', "steps: fewer than 1 items"),
        (f'{{"category": "bug", {REST}, "steps": [5]}}', "steps[0]: not of the type object"),
        (
            f'{{"category": "bug", {REST}, "steps": [{{"team": "payments", "hours": 10.5}}]}}',
            "steps[0].hours: not below 10",
        ),
        (
            f'{{"category": "bug", {REST}, "steps": [{{"team": "payments", "hours": 0}}]}}',
            "steps[0].hours: not above 0",
        ),
        (f'{{"category": "bug", {REST}, "urgent": null}}', "urgent: not of the type boolean"),
        ("[]", "$: not of the type object"),
    ],
)
def test_a_problem_has_one_wording_wherever_it_is_found(answer: str, problem: str) -> None:
    progress = JsonProgress(compile_schema(SCHEMA))
    progress.feed(answer)

    assert progress.problem == problem
    assert str(validator(SCHEMA)(answer)) == problem
    with pytest.raises(pydantic.ValidationError) as raised:
        Ticket.model_validate_json(answer)
    found = str(problem_of(raised.value, SCHEMA))
    assert found.replace("10.0", "10").replace("0.0", "0") == problem

"""Whether an answer's form can be bounded: to JSON, and to a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import openai

from ._asking import WholeAnswer
from ._findings import Group, MeasuredFact, ProviderFinding
from ._session import DoctorSession
from ._words import of_status

_GROUP: Group = "structured outputs"
TOKENS = 200

# The prompts ask for prose: an answer in the form that was asked for then comes from the bound and not from good will.
# The word JSON has to be in the messages for `json_object`, as OpenAI documents it.
_JSON_PROMPT = "Reply with one short sentence about the sea. The note 'JSON' below is for the archive.\nJSON"
_SCHEMA_PROMPT = "Reply with one short sentence about the sea."

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "mood": {"type": "string", "enum": ["calm", "rough"]},
        "waves": {"type": "integer"},
        "is_blue": {"type": "boolean"},
    },
    "required": ["mood", "waves", "is_blue"],
    "additionalProperties": False,
}


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Ask for prose, bounded to JSON and then to a schema."""
    assert session.asking is not None
    schema = {"name": "sea", "strict": True, "schema": SCHEMA}
    kept: list[str] = []
    for name, prompt, response_format in (
        ("json_object", _JSON_PROMPT, {"type": "json_object"}),
        ("json_schema", _SCHEMA_PROMPT, {"type": "json_schema", "json_schema": schema}),
    ):
        try:
            whole = session.asking.whole(prompt, TOKENS, response_format=response_format)
        except openai.APIStatusError as error:
            yield refusal(name, error.status_code)
            continue
        finding = judge(name, whole, kept)
        if finding.facts:
            kept.append(name)
        yield finding


def refusal(name: str, status: int) -> ProviderFinding:
    """A form that was not taken."""
    taken = status in (400, 404, 422)
    return ProviderFinding(
        group=_GROUP,
        looked_at=name,
        seen=f"refused ({of_status(status)})",
        state="notable" if taken else "failed",
        value={"status": status},
    )


def judge(name: str, whole: WholeAnswer, kept_before: Sequence[str] = ()) -> ProviderFinding:
    """Whether an answer keeps to the form that was asked for. `kept_before`: the forms of which that is known."""
    problem = _problem(name, whole.text)
    if problem is None:
        seen = "an object of the schema" if name == "json_schema" else "a JSON object"
        return ProviderFinding(
            group=_GROUP,
            looked_at=name,
            seen=f"{seen}, although the prompt asked for prose",
            value={"valid": True, "finish_reason": whole.finish_reason},
            facts=(MeasuredFact(path=("structured", "formats"), value=[*kept_before, name]),),
        )
    if whole.finish_reason == "length":
        return ProviderFinding(
            group=_GROUP,
            looked_at=name,
            seen=f"not finished within {TOKENS} tokens",
            state="failed",
            value={"valid": None, "finish_reason": "length"},
        )
    return ProviderFinding(
        group=_GROUP,
        looked_at=name,
        seen=f"taken, but the answer is {problem}",
        state="notable",
        advice="The server passes over the bound: check what comes before you use it.",
        value={"valid": False, "finish_reason": whole.finish_reason},
    )


def _problem(name: str, text: str | None) -> str | None:
    """What is wrong with an answer, in words that quote nothing of it; None where nothing is."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(value, dict):
        return "no JSON object"
    if name == "json_schema" and not is_of_the_schema(value):
        return "JSON, but not of the schema"
    return None


def is_of_the_schema(value: Mapping[str, Any]) -> bool:
    """Whether an object is valid for `SCHEMA`."""
    return (
        set(value) == {"mood", "waves", "is_blue"}
        and value["mood"] in ("calm", "rough")
        and isinstance(value["waves"], int)
        and not isinstance(value["waves"], bool)
        and isinstance(value["is_blue"], bool)
    )

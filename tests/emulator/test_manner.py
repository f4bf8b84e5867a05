"""How a model misbehaves with structured output, and how it calls tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import jsonschema  # type: ignore[import-untyped]
import pytest

from fastlane.emulator import Emulator, ProviderModel
from fastlane.errors import ConfigurationError
from tests.emulator.requests import chat

CATEGORIES = ["billing", "shipping", "bug"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"enum": CATEGORIES},
        "enum": {"type": "string", "maxLength": 12},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
    },
    "required": ["category", "enum", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 6}},
}
FORM = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA}}
QUESTION: dict[str, Any] = {"role": "user", "content": "Weather and time?"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "time")
]


class Said(NamedTuple):
    """One answer."""

    text: str
    finish_reason: str
    tokens: int
    tool: str | None
    manner: str | None


Ask = Callable[..., Said]


@pytest.fixture
def protocol() -> str:
    return "HTTP/2"


@pytest.fixture
def generated(http: httpx2.Client, emulator: Emulator) -> Ask:
    """What the emulator says to a chat completion that asks for the schema, in a manner."""

    def ask(manner: str, *, headers: dict[str, str] | None = None, **body: Any) -> Said:
        sent = {"x-emulator-manner": manner, **(headers or {})}
        response_body = http.post(
            "/chat/completions", json=chat(**{"response_format": FORM, **body}), headers=sent
        ).json()
        (choice,) = response_body["choices"]
        (call,) = choice["message"].get("tool_calls") or [None]
        text = choice["message"]["content"] if call is None else call["function"]["arguments"]
        tool = None if call is None else call["function"]["name"]
        tokens = response_body["usage"]["completion_tokens"]
        return Said(text, choice["finish_reason"], tokens, tool, emulator.log()[-1].manner)

    return ask


def valid(answer: str) -> bool:
    try:
        jsonschema.validate(json.loads(answer), SCHEMA)
    except (jsonschema.ValidationError, json.JSONDecodeError):
        return False
    return True


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("rude", "unknown manner 'rude': the known ones are exact"),
        ("prose;share=2", "Input should be"),
        ("prose;repairs=-1", "Input should be"),
        ("prose;tokens=0", "Input should be greater than or equal to 1"),
        ("prose;tokens=many", "valid integer"),
        ("prose;often=1", "often: Unexpected keyword"),
        ("prose,second", "one way only, got prose and second"),
    ],
)
def test_invalid_manner_is_refused_with_known_ones(manner: str, message: str, http: httpx2.Client) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ProviderModel(manner=manner)
    answer = http.post("/chat/completions", json=chat(), headers={"x-emulator-manner": manner})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    assert message in answer.json()["error"]["message"]


def test_every_manner_is_documented(http: httpx2.Client) -> None:
    page = (Path(__file__).parents[2] / "docs/emulator.md").read_text(encoding="utf-8")
    refused = http.post("/chat/completions", json=chat(), headers={"x-emulator-manner": "rude"}).json()
    known = refused["error"]["message"].partition("known ones are ")[2].partition(":")[0].rstrip(".").split(", ")

    assert len(known) >= 8
    assert [kind for kind in known if f"- `{kind}`: " not in page] == []


@pytest.mark.parametrize("kind", ["whitespace", "prose", "second"])
@pytest.mark.parametrize("limit", [None, 300])
def test_run_on_manner_extends_exact_answer_up_to_its_limit(generated: Ask, kind: str, limit: int | None) -> None:
    exact, answer = generated("exact"), generated(kind, max_tokens=limit)
    behind = answer.text.removeprefix(exact.text)

    assert valid(exact.text)
    assert exact.manner is None
    assert behind[0] == "\n"
    assert {"whitespace": behind.isspace(), "prose": behind.strip()[:1].isalpha(), "second": behind.strip()[:1] == "{"}[
        kind
    ]
    assert (answer.tokens, answer.finish_reason, answer.manner) == (limit or 4_096, "length", kind)


def test_reasoning_is_part_of_the_limit(generated: Ask) -> None:
    answer = generated("whitespace", headers={"x-emulator-reasoning-tokens": "40"}, max_tokens=200)

    assert (answer.tokens, answer.finish_reason) == (200, "length")


def test_run_on_manner_ends_at_its_tokens_or_a_stop_sequence(generated: Ask) -> None:
    exact = generated("exact").text
    some, stopped = generated("prose;tokens=10"), generated("whitespace", stop="\n\n")

    assert (len(some.text), some.finish_reason) == (len(exact) + 40, "stop")
    assert (stopped.text, stopped.finish_reason) == (exact, "stop")


def test_fence_manner_wraps_the_answer(generated: Ask) -> None:
    exact = generated("exact").text

    assert generated("fence").text == f"```json\n{exact}\n```"
    assert generated("prose,fence", max_tokens=300).text.startswith(f"```json\n{exact}\n```\n\n")


def test_talkative_manner_adds_prose_without_a_schema(generated: Ask) -> None:
    given = '{"category": "billing"}'
    free = generated("talkative,fence", headers={"x-emulator-output-text": given}, response_format=None)
    before, _, answer = free.text.partition("\n\n")

    assert answer == f"```json\n{given}\n```"
    assert before.count(".") >= 3
    assert free.manner == "fence,talkative"
    assert generated("talkative").text == generated("exact").text


@pytest.mark.parametrize("kind", ["wrong_enum", "truncated"])
def test_wrong_answer_manner_gives_an_invalid_answer(generated: Ask, kind: str) -> None:
    exact = generated("exact").text
    for draw in range(20):
        answer = generated(kind, headers={"x-emulator-draw": str(draw)})
        assert not valid(answer.text)
        assert answer.manner == kind
    if kind == "truncated":
        assert answer.finish_reason == "length"
        assert exact.startswith(generated(kind).text)
    else:
        wrong = json.loads(answer.text)
        assert wrong["category"] not in CATEGORIES
        assert valid(json.dumps({**wrong, "category": CATEGORIES[0]}))


def test_manner_share_is_seeded_and_equal_for_equal_draws(generated: Ask) -> None:
    def struck(manner: str, prompt: str) -> list[bool]:
        messages = [{"role": "user", "content": prompt}]
        answers = [generated(manner, messages=messages, headers={"x-emulator-draw": str(draw)}) for draw in range(60)]
        return ["truncated" in (answer.manner or "") for answer in answers]

    first = struck("truncated;share=0.3", "one")

    assert 6 <= sum(first) <= 32
    assert first == struck("fence;share=0.9,truncated;share=0.3", "another")


@pytest.mark.parametrize(
    ("behind", "again"),
    [
        ([], False),
        ([{"role": "user", "content": "And the next?"}], False),
        ([{"role": "assistant", "content": "{"}, {"role": "user", "content": "no"}], True),
        ([{"role": "assistant", "content": "{"}, *([{"role": "user", "content": "And these?"}] * 2)], False),
    ],
)
def test_repair_request_gets_an_exact_answer(generated: Ask, behind: list[Any], again: bool) -> None:
    messages = [{"role": "system", "content": "Sort."}, {"role": "user", "content": "Sort this."}, *behind]

    assert valid(generated("wrong_enum", messages=messages).text) is again
    assert not valid(generated("wrong_enum;repairs=1", messages=messages).text)


def returned(*names: str) -> list[dict[str, Any]]:
    """A conversation in which the named tools have returned already."""
    return [QUESTION] + [
        message
        for name in names
        for message in (
            {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]},
            {"role": "tool", "content": f"the {name}"},
        )
    ]


@pytest.mark.parametrize(
    ("names", "choice", "tool"),
    [
        ((), "auto", "weather"),
        (("weather",), "auto", "time"),
        (("weather", "time"), "auto", None),
        (("weather", "time"), "required", "time"),
        ((), {"type": "function", "function": {"name": "time"}}, "time"),
        (("time",), {"type": "function", "function": {"name": "time"}}, "time"),
        ((), "none", None),
    ],
)
def test_tools_manner_calls_tools_one_by_one(
    generated: Ask, names: tuple[str, ...], choice: Any, tool: str | None
) -> None:
    answer = generated("tools,echo", response_format=None, messages=returned(*names), tools=TOOLS, tool_choice=choice)

    assert answer.tool == tool
    if tool is None:
        assert (answer.text, answer.finish_reason) == (returned(*names)[-1]["content"], "stop")


def test_tools_manner_applies_to_the_responses_endpoint(http: httpx2.Client) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
    back = [
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "18 degrees"},
    ]
    first, last = (
        http.post(
            "/responses",
            json={"model": "m", "input": given, "tools": tools},
            headers={"x-emulator-manner": "tools,echo"},
        ).json()["output"][0]
        for given in ([QUESTION], [QUESTION, *back])
    )

    assert (first["type"], first["name"]) == ("function_call", "weather")
    assert last["content"][0]["text"] == "18 degrees"


def test_echo_fills_an_echo_property_of_the_schema(generated: Ask) -> None:
    properties = {"echo": {"type": "string"}, "enum": {"type": "string"}, "short": {"$ref": "#/$defs/short"}}
    short = {"type": "object", "properties": {"echo": {"type": "string", "maxLength": 3}}, "required": ["echo"]}
    schema = {"type": "object", "properties": properties, "required": [*properties], "$defs": {"short": short}}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    tools = [{"type": "function", "function": {"name": "file", "parameters": schema}}]
    named = {"type": "function", "function": {"name": "file"}}

    for body in ({"response_format": form}, {"response_format": None, "tools": tools, "tool_choice": named}):
        answer = generated("echo", messages=[QUESTION], **body)
        value = json.loads(answer.text)
        assert (value["echo"], value["short"]) == (QUESTION["content"], {"echo": QUESTION["content"][:3]})
        assert value["enum"] != QUESTION["content"]
        assert answer.manner == "echo"

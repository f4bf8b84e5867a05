from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings, strategies as st

from fastlane.emulator import Emulator, ProviderModel
from fastlane.emulator._generation import GeneratedChoice, asks_again, generate
from fastlane.emulator._prompt import read_chat, read_responses
from fastlane.emulator._request import ApiError, Overrides, read_overrides
from fastlane.emulator.settings import MANNERS, Manner, parse_manners
from fastlane.errors import ConfigurationError
from tests.emulator.requests import chat, content, events, stream

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
TOOLS = [{"type": "function", "function": {"name": "file", "parameters": SCHEMA}}]
AGAIN = [
    {"role": "user", "content": "Sort this."},
    {"role": "assistant", "content": '{"category": "other"}'},
    {"role": "user", "content": "That is not valid. Answer again."},
]


def said(manner: str, *, headers: dict[str, str] | None = None, seed: int = 0, **body: Any) -> GeneratedChoice:
    prompt = read_chat(chat(**{"response_format": FORM, **body}))
    overrides = read_overrides({"x-emulator-manner": manner, **(headers or {})})
    return generate(prompt, overrides, ProviderModel(), seed=seed)[0]


def text(choice: GeneratedChoice) -> str:
    return "".join(choice.pieces)


def valid(answer: str) -> bool:
    try:
        jsonschema.validate(json.loads(answer), SCHEMA)
    except (jsonschema.ValidationError, json.JSONDecodeError):
        return False
    return True


EXACT = text(said("exact"))


@given(
    st.builds(
        Manner,
        kind=st.sampled_from(sorted(MANNERS)),
        share=st.floats(0, 1),
        repairs=st.floats(0, 1),
        tokens=st.none() | st.integers(1, 1_000_000),
    )
)
def test_a_manner_written_is_read_as_itself(manner: Manner) -> None:
    assert Manner.parse(str(manner)) == manner


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
def test_a_manner_that_cannot_be_says_so(manner: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_manners(manner)
    with pytest.raises(ConfigurationError, match=message):
        ProviderModel(manner=manner)
    with pytest.raises(ApiError, match=message):
        read_overrides({"x-emulator-manner": manner})


def test_every_manner_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/emulator.md").read_text(encoding="utf-8")

    assert [kind for kind in MANNERS if f"| `{kind}` |" not in page] == []


def test_an_answer_is_exact_unless_something_else_is_asked_for() -> None:
    plain = generate(read_chat(chat(response_format=FORM)), Overrides(), ProviderModel(), seed=0)[0]

    assert text(plain) == EXACT
    assert valid(EXACT)
    assert plain.manner == ()


@pytest.mark.parametrize("kind", ["whitespace", "prose", "second"])
@pytest.mark.parametrize("limit", [None, 300])
def test_what_runs_on_begins_with_the_exact_answer_and_goes_to_its_limit(kind: str, limit: int | None) -> None:
    choice = said(kind, max_tokens=limit)

    assert text(choice).startswith(EXACT)
    assert text(choice)[len(EXACT)] == "\n"
    assert len(choice.pieces) == (limit or 4_096)
    assert choice.finish_reason == "length"
    assert choice.manner == (kind,)


def test_each_way_of_running_on_says_something_else() -> None:
    behind = {kind: text(said(kind))[len(EXACT) :] for kind in ("whitespace", "prose", "second")}

    assert behind["whitespace"].isspace()
    assert behind["prose"].strip()[0].isalpha()
    assert valid(behind["second"].strip().splitlines()[0])


def test_reasoning_is_part_of_the_limit_to_which_it_runs_on() -> None:
    choice = said("whitespace", headers={"x-emulator-reasoning-tokens": "40"}, max_tokens=200)

    assert len(choice.reasoning) == 40
    assert choice.tokens == 200
    assert choice.finish_reason == "length"


def test_running_on_for_so_many_tokens_ends_by_itself() -> None:
    choice = said("prose;tokens=10")

    assert len(text(choice)) == len(EXACT) + 40
    assert choice.finish_reason == "stop"


def test_a_fence_stands_around_the_answer_and_prose_behind_it() -> None:
    assert text(said("fence")) == f"```json\n{EXACT}\n```"
    assert text(said("prose,fence")).startswith(f"```json\n{EXACT}\n```\n\n")


def test_a_talkative_model_thinks_aloud_where_no_schema_binds_it() -> None:
    given = '{"category": "billing"}'
    free = said("talkative,fence", headers={"x-emulator-output-text": given}, response_format=None)
    prose = said("talkative", response_format=None)

    before, _, answer = text(free).partition("\n\n")
    assert answer == f"```json\n{given}\n```"
    assert before.count(".") >= 3
    assert len(before) >= 4 * 60
    assert free.manner == ("fence", "talkative")
    assert len(prose.pieces) > 64 + 60
    assert text(said("talkative")) == EXACT
    assert said("talkative").manner == ()


def test_free_text_knows_no_other_manner() -> None:
    plain = said("exact", response_format=None)

    assert said("whitespace,fence,truncated", response_format=None) == plain


@pytest.mark.parametrize("kind", ["wrong_enum", "truncated"])
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_an_answer_that_goes_wrong_is_not_valid(kind: str, seed: int) -> None:
    choice = said(kind, seed=seed)

    assert not valid(text(choice))
    assert choice.manner == (kind,)


def test_what_is_wrong_is_what_the_manner_says() -> None:
    wrong = json.loads(text(said("wrong_enum")))

    assert wrong["category"] not in CATEGORIES
    assert {**wrong, "category": CATEGORIES[0]}.keys() == SCHEMA["properties"].keys()
    assert valid(json.dumps({**wrong, "category": CATEGORIES[0]}))
    assert EXACT.startswith(text(said("truncated")))
    assert said("truncated").finish_reason == "length"


def test_a_schema_that_cannot_be_got_wrong_is_answered_exactly() -> None:
    plain = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
    choice = said("wrong_enum", response_format=plain)

    assert text(choice) == "{}"
    assert choice.manner == ()


def test_the_arguments_of_a_tool_are_written_in_the_same_manner() -> None:
    exact = said("exact", response_format=None, tools=TOOLS, tool_choice="required")
    choice = said("whitespace", response_format=None, tools=TOOLS, tool_choice="required", max_tokens=100)

    assert choice.tool == "file"
    assert text(choice).rstrip() == text(exact)
    assert (exact.finish_reason, choice.finish_reason) == ("tool_calls", "length")


def test_a_share_of_the_answers_misbehaves_and_which_ones_is_the_seeds_choice() -> None:
    def struck(manner: str, number: int) -> bool:
        return "truncated" in said(manner, messages=[{"role": "user", "content": f"Ticket {number}"}]).manner

    first = [struck("truncated;share=0.3", number) for number in range(200)]

    assert 30 <= sum(first) <= 90
    assert first == [struck("fence;share=0.9,truncated;share=0.3", number) for number in range(200)]


def test_equal_draws_misbehave_alike_whatever_the_prompts() -> None:
    def struck(prompt: str) -> list[bool]:
        return [
            bool(said("truncated;share=0.5", messages=[{"role": "user", "content": prompt}], headers=wish).manner)
            for wish in ({"x-emulator-draw": str(number)} for number in range(50))
        ]

    assert struck("one") == struck("another")
    assert len(set(struck("one"))) == 2


def test_one_that_asks_again_is_answered_exactly() -> None:
    assert valid(text(said("wrong_enum,whitespace", messages=AGAIN)))
    assert not valid(text(said("wrong_enum;repairs=1", messages=AGAIN)))
    assert not valid(text(said("wrong_enum", messages=AGAIN[:1])))


@pytest.mark.parametrize(
    ("behind", "again"),
    [
        ([], False),
        ([{"role": "user", "content": "And the next?"}], False),
        ([{"role": "assistant", "content": "{"}, {"role": "user", "content": "no"}], True),
        ([{"role": "assistant", "tool_calls": []}, *([{"role": "tool", "content": "no"}] * 3)], True),
        ([{"role": "assistant", "tool_calls": []}, {"role": "tool"}, {"role": "user", "content": "no"}], True),
        ([{"type": "function_call"}, {"type": "function_call_output"}, {"role": "user", "content": "no"}], True),
        ([{"role": "assistant", "content": "{"}, *([{"role": "user", "content": "And these?"}] * 2)], False),
        (["odd"], False),
    ],
)
def test_one_asks_again_where_the_model_has_just_spoken(behind: list[Any], again: bool) -> None:
    items = [{"role": "system", "content": "Sort."}, {"role": "user", "content": "Sort this."}, *behind]

    assert asks_again({"messages": items}) is again
    assert asks_again({"input": items}) is again


def test_a_text_for_input_asks_for_the_first_time() -> None:
    assert not asks_again({"input": "Sort this."})
    assert not asks_again({"prompt": "Sort this."})


def test_a_response_is_written_in_the_same_manner() -> None:
    form = {"format": {"type": "json_schema", "name": "ticket", "schema": SCHEMA}}
    prompt = read_responses({"model": "m", "input": "Sort this.", "text": form, "max_output_tokens": 90})
    choice = generate(prompt, read_overrides({"x-emulator-manner": "prose"}), ProviderModel(), seed=0)[0]

    assert len(choice.pieces) == 90
    assert choice.finish_reason == "length"


def test_a_requests_wish_goes_before_the_models_own_manner() -> None:
    prompt, rude = read_chat(chat(response_format=FORM)), ProviderModel(manner="prose", run_on_tokens=500)

    assert len(generate(prompt, Overrides(), rude, seed=0)[0].pieces) == 500
    assert text(generate(prompt, read_overrides({"x-emulator-manner": "exact"}), rude, seed=0)[0]) == EXACT


def test_a_stop_sequence_ends_what_runs_on() -> None:
    choice = said("whitespace", stop="\n\n")

    assert text(choice) == EXACT
    assert choice.finish_reason == "stop"


def test_the_record_says_how_an_answer_misbehaved(http: httpx2.Client, emulator: Emulator) -> None:
    body = chat(response_format=FORM, max_tokens=120)
    streamed = stream(http, body, x_emulator_manner="whitespace,fence")
    exact = http.post("/chat/completions", json=body).json()["choices"][0]["message"]["content"]

    assert content(streamed).startswith(f"```json\n{exact}\n```")
    assert events(streamed)[-1]["choices"][0]["finish_reason"] == "length"
    assert [record.manner for record in emulator.log()] == ["whitespace,fence", None]
    assert emulator.log()[0].output_tokens == 120


def test_an_unknown_manner_is_a_400(http: httpx2.Client) -> None:
    answer = http.post("/chat/completions", json=chat(), headers={"x-emulator-manner": "rude"})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_value"


TWO_TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "time")
]
QUESTION: dict[str, Any] = {"role": "user", "content": "Weather and time?"}


def called(*names: str, **body: Any) -> str | None:
    """The tool that is called where the named ones have returned already."""
    said_before = [
        message
        for name in names
        for message in (
            {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]},
            {"role": "tool", "content": f"the {name}"},
        )
    ]
    settings = {"response_format": None, "messages": [QUESTION, *said_before], "tools": TWO_TOOLS, **body}
    return said("tools,echo", **settings).tool


def test_a_model_that_calls_tools_calls_one_after_the_other_and_answers_then() -> None:
    assert [called(), called("weather"), called("weather", "time")] == ["weather", "time", None]


def test_what_a_loop_of_tools_ends_with_is_what_the_last_one_returned() -> None:
    back = [
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": name, "arguments": "{}"}} for name in ("weather", "time")],
        },
        {"role": "tool", "content": "18 degrees"},
        {"role": "tool", "content": "noon"},
    ]
    answer = said("tools,echo", response_format=None, messages=[QUESTION, *back], tools=TWO_TOOLS)

    assert (answer.tool, text(answer), answer.finish_reason) == (None, "noon", "stop")


def test_new_words_of_the_user_begin_the_loop_anew() -> None:
    before = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "weather"}}]},
        {"role": "tool", "content": "18"},
    ]

    assert called(messages=[QUESTION, *before, QUESTION]) == "weather"


def test_who_must_call_a_tool_calls_the_last_when_all_were_called() -> None:
    assert [called(*names, tool_choice="required") for names in ((), ("weather",), ("weather", "time"))] == [
        "weather",
        "time",
        "time",
    ]


def test_the_requests_own_choice_of_a_tool_is_kept() -> None:
    named = {"type": "function", "function": {"name": "time"}}

    assert called(tool_choice=named) == "time"
    assert called("time", tool_choice=named) == "time"
    assert called(tool_choice="none") is None
    assert called(tools=None) is None


def test_the_tools_of_a_response_are_called_in_the_same_way() -> None:
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
    wish = read_overrides({"x-emulator-manner": "tools,echo"})
    back = [
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "18 degrees"},
    ]
    first, last = (
        generate(read_responses({"model": "m", "input": given, "tools": tools}), wish, ProviderModel(), seed=0)[0]
        for given in ([QUESTION], [QUESTION, *back])
    )

    assert (first.tool, first.manner) == ("weather", ("tools",))
    assert (last.tool, text(last)) == (None, "18 degrees")


def test_an_echo_in_a_structure_stands_where_the_schema_has_a_place_for_it() -> None:
    properties = {"echo": {"type": "string"}, "enum": {"type": "string"}, "short": {"$ref": "#/$defs/short"}}
    short = {"type": "object", "properties": {"echo": {"type": "string", "maxLength": 3}}, "required": ["echo"]}
    place = {"type": "object", "properties": properties, "required": [*properties], "$defs": {"short": short}}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": place}}
    tools = [{"type": "function", "function": {"name": "file", "parameters": place}}]
    named = {"type": "function", "function": {"name": "file"}}

    for body in ({"response_format": form}, {"response_format": None, "tools": tools, "tool_choice": named}):
        answer = said("echo", messages=[QUESTION], **body)
        value = json.loads(text(answer))
        assert (value["echo"], value["short"]) == (QUESTION["content"], {"echo": QUESTION["content"][:3]})
        assert value["enum"] != QUESTION["content"]
        assert answer.manner == ("echo",)


def test_an_echo_changes_no_structure_without_a_place_for_it() -> None:
    assert said("echo") == said("exact")

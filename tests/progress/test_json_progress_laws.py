"""What holds of every JSON text, of every schema and of every way in which a text can be cut into pieces."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from fastlane.plays.bounded_output.progress._json_progress import JsonProgress
from fastlane.plays.bounded_output.progress._nodes import Node, compile_schema
from fastlane.records.output import StopReason
from tests.progress.small_schemas import document, value, written

SEEDS = st.integers(0, 2**32)
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["leaf", "fork"]},
        "name": {"type": "string", "maxLength": 4},
        "weight": {"type": "number", "minimum": -1, "exclusiveMaximum": 1e6},
        "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        "note": {
            "anyOf": [{"type": "null"}, {"const": "none"}, {"type": "array", "prefixItems": [{"type": "integer"}]}]
        },
    },
    "required": ["kind", "children"],
    "additionalProperties": False,
}
TREES: st.SearchStrategy[list[Any]] = st.recursive(
    st.just([]),
    lambda children: st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from(["leaf", "fork"]), "children": children},
            optional={
                "name": st.text(max_size=4),
                "weight": st.integers(-1, 999_999) | st.floats(-1, 1e6, exclude_max=True),
                "note": st.none() | st.just("none") | st.tuples(st.integers(), st.booleans()),
            },
        ),
        max_size=2,
    ),
    max_leaves=8,
)


def fed(node: Node, text: str, random: Random, most: int) -> tuple[JsonProgress, StopReason | None]:
    """Feed a text in pieces; a value that is whole before its end fails."""
    progress = JsonProgress(node)
    said: StopReason | None = None
    at = 0
    while at < len(text):
        assert said is None or said == "invalid"
        size = random.randint(1, most)
        said = progress.feed(text[at : at + size])
        at += size
    # A number ends with what follows.
    return progress, progress.feed("\n")


def check_valid(schema: Any, instance: Any, random: Random) -> None:
    text = written(random, instance)
    for most in (1, 5, len(text)):
        progress, said = fed(compile_schema(schema), text, random, most)
        assert said == "complete", (schema, text, progress.problem)
        assert (progress.start, progress.end) == (0, len(text))
        assert progress.text == text + "\n"


@settings(max_examples=60)
@given(TREES, SEEDS)
def test_a_valid_answer_is_never_stopped_and_ends_at_its_last_brace(children: list[Any], seed: int) -> None:
    check_valid(TREE, {"kind": "fork", "children": children}, Random(seed))


@settings(max_examples=250)
@given(SEEDS)
def test_what_a_validator_takes_is_never_stopped(seed: int) -> None:
    random = Random(seed)
    schema = document(random, plain=False)
    instances = [value(random) for _ in range(6)]
    validator = Draft202012Validator(schema)
    for instance in instances:
        if validator.is_valid(instance):
            check_valid(schema, instance, random)


@settings(max_examples=150)
@given(SEEDS)
def test_what_a_validator_refuses_by_the_keywords_looked_at_is_stopped_by_the_end(seed: int) -> None:
    random = Random(seed)
    schema = document(random, plain=True)
    validator = Draft202012Validator(schema)
    for _ in range(4):
        instance = value(random)
        if not validator.is_valid(instance):
            text = written(random, instance)
            assert fed(compile_schema(schema), text, random, 5)[1] == "invalid", (schema, text)


@settings(max_examples=100)
@given(SEEDS)
def test_what_is_said_does_not_depend_on_how_a_text_is_cut(seed: int) -> None:
    random = Random(seed)
    node = compile_schema(document(random, plain=False))
    text = written(random, value(random))

    one, said = fed(node, text, random, 1)
    for most in (3, len(text)):
        other, again = fed(node, text, random, most)
        assert (again, other.problem, other.end) == (said, one.problem, one.end)


# Syntax

JUNK = [
    *'{}[]",:\\0123456789.eE+-tfn \t\n\r\x00\x1f\x7f',
    *("NaN", "Infinity", "'", "//x\n", ",]", ",}", "\\u12", "\\ud83d", "\\x", "01", "1.", "٣", "²", "\ufeff", "\u00a0"),
]
# What may be missing of the token that a text is cut in, and of the property that it belongs to.
ENDS = [
    *("", '"', "0", "null", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l", ":0", '"":0'),
    *(f'{escape}"{colon}' for escape in ("", "n", "0", "00", "000", "0000", "u0000") for colon in ("", ":0")),
]  # fmt: skip


def no_constants(name: str) -> Any:
    raise ValueError(name)


def parses(text: str) -> bool:
    try:
        json.loads(text, parse_constant=no_constants)
    except ValueError:
        return False
    return True


def can_go_on(text: str) -> bool:
    """Whether there is anything with which a text becomes JSON, found by trying."""
    closing = ""
    in_string = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif in_string:
            escaped, in_string = char == "\\", char != '"'
        elif char == '"':
            in_string = True
        elif char in "{[":
            closing = ("}" if char == "{" else "]") + closing
        elif char in "}]":
            closing = closing[1:]
    return any(parses(text + end + closing) for end in ENDS)


@settings(max_examples=150)
@given(SEEDS)
def test_the_syntax_is_that_of_json_to_every_character(seed: int) -> None:
    random = Random(seed)
    text = written(random, value(random))
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice([*JUNK, ""]) + text[at + random.randrange(2) :]
    node = compile_schema(None)
    for end in range(1, len(text) + 1):
        said = JsonProgress(node).feed(text[:end])
        if said not in (None, "complete", "invalid"):
            break  # It goes on behind a whole value, which json.loads does not tell from other errors.
        assert (said != "invalid") == can_go_on(text[:end]), text[:end]

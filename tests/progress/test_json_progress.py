from __future__ import annotations

from typing import Any

import pytest

from fastlane.plays.bounded_output.progress._json_progress import JsonProgress
from fastlane.plays.bounded_output.progress._nodes import compile_schema
from fastlane.records.output import StopReason

TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug", "feature"]},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "confidence": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "note": {"type": "string", "minLength": 2, "maxLength": 5},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "urgent": {"const": True},
        "links": {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 2},
    },
    "required": ["category"],
    "additionalProperties": False,
}


def fed(schema: Any, *pieces: str, **options: Any) -> JsonProgress:
    progress = JsonProgress(compile_schema(schema), **options)
    for piece in pieces:
        progress.feed(piece)
    return progress


def reasons(schema: Any, *pieces: str, **options: Any) -> list[StopReason | None]:
    progress = JsonProgress(compile_schema(schema), **options)
    return [progress.feed(piece) for piece in pieces]


# The end of the value


@pytest.mark.parametrize("text", ['{"a": [1, {"b": "}"}]}', "[]", '"a\\"b"', "true", "null"])
def test_a_value_is_complete_with_its_last_character(text: str) -> None:
    assert reasons(None, *text) == [None] * (len(text) - 1) + ["complete"]


def test_a_number_ends_with_what_follows_it() -> None:
    assert reasons(None, "1", "2.5") == [None, None]
    assert reasons(None, "12.5", "\n") == [None, "complete"]
    assert fed(None, " 12.5", "\n").end == 5


def test_white_space_behind_the_value_is_a_run_from_the_ninth_character_on() -> None:
    assert reasons(None, "{}", "\n", " " * 7, " ", "x") == [
        "complete",
        "complete",
        "complete",
        "whitespace",
        "whitespace",
    ]
    assert reasons(None, "{}" + "\n" * 8) == ["complete"]
    assert reasons(None, "{}" + "\n" * 9) == ["whitespace"]


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ("I hope this", "prose"),
        ("\n{", "prose"),
        ("}", "prose"),
        ("\n```", "fence"),
        ("`", "fence"),
        ("\n", "complete"),
    ],
)
def test_what_comes_behind_the_value_has_a_name(behind: str, reason: StopReason) -> None:
    for pieces in (("{}" + behind,), ("{}", behind), ("{", "}" + behind)):
        progress = fed(None, *pieces)

        assert progress.feed("") == reason
        assert (progress.complete, progress.start, progress.end) == (True, 0, 2)
        assert progress.problem is None
        assert progress.text == "{}" + behind


def test_a_fence_before_the_value_is_skipped() -> None:
    text = '\n```json\n{"a": 1}\n```'

    for pieces in ([text], list(text)):
        progress = fed(None, *pieces)
        assert progress.feed("") == "fence"
        assert text[progress.start : progress.end] == '{"a": 1}'


@pytest.mark.parametrize(
    "text", ["Sure, here it is:", "``json\n{}", "```json {}", "```js```", "\ufeff{}", "<think>", "'a'"]
)
def test_other_text_before_the_value_is_invalid(text: str) -> None:
    progress = fed(None, text)

    assert progress.feed("{}") == "invalid"
    assert progress.problem == "$: text before the JSON"
    assert not progress.complete


# White space inside of it


def test_a_run_of_white_space_between_tokens_stops() -> None:
    assert reasons(None, '{"a":', " " * 100, "\n" * 29) == [None, None, "whitespace"]
    assert reasons(None, '{"a":', " " * 128, "1", " " * 128, "}") == [None, None, None, None, "complete"]
    assert reasons(None, "[1", " \n", " \n", " ", whitespace_run=4) == [None, None, None, "whitespace"]


def test_single_spaces_between_many_tokens_are_no_run() -> None:
    assert reasons(None, *"[", *(["1", " ", ","] * 200), whitespace_run=3) == [None] * 601


def test_white_space_in_a_string_is_text() -> None:
    assert reasons(None, '"' + " " * 500, '"') == [None, "complete"]


def test_a_deep_indent_is_no_run() -> None:
    text = "".join("[\n" + "    " * depth for depth in range(1, 80))

    assert reasons(None, *text)[-1] is None


# What can no longer become valid


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"category":"bo', "category: not one of the allowed values"),
        ('{"category":"bugs', "category: not one of the allowed values"),
        ('{"category":"b"', "category: not one of the allowed values"),
        ('{"category":1', "category: not one of the allowed values"),
        ('{"category":{', "category: not one of the allowed values"),
        ('{"category":[', "category: not one of the allowed values"),
        ('{"category":n', "category: not one of the allowed values"),
        ('{"priority":"', "priority: not of the type integer"),
        ('{"priority":6,', "priority: above the maximum of 5"),
        ('{"priority":2.5}', "priority: not of the type integer"),
        ('{"confidence":0.0 ', "confidence: not above 0"),
        ('{"note":"123456', "note: longer than 5 characters"),
        ('{"note":"1"', "note: shorter than 2 characters"),
        ('{"tags":["a","b",', "tags: more than 2 items"),
        ('{"tags":[]', "tags: fewer than 1 items"),
        ('{"tags":["a",1', "tags[1]: not of the type string"),
        ('{"urgent":f', "urgent: not one of the allowed values"),
        ('{"cx', "$: properties that the schema does not allow"),
        ('{"categor"', "$: properties that the schema does not allow"),
        ('{"priority":1}', '$: "category" is missing'),
        ('{"links":{"secret":1', "links.*: not of the type string"),
        ('{"links":{"a":"","b":"","c"', "links: more than 2 properties"),
        ('{"links":{}', "links: fewer than 1 properties"),
        ("[", "$: not of the type object"),
        ('{"category";', "category: no colon behind the property's name"),
        ('{"category":"bug";', "category: no comma or end behind the value"),
        ("{c", "$: no property where one is expected"),
    ],
)
def test_a_wrong_answer_is_seen_where_it_becomes_wrong(text: str, problem: str) -> None:
    said = reasons(TICKET, *text)

    assert said == [None] * (len(text) - 1) + ["invalid"]
    assert fed(TICKET, text, "more").problem == problem


def test_a_problem_has_no_text_of_the_answer() -> None:
    deep = '{"secret":' * 20 + "secret"

    assert fed(None, deep).problem == "*" + ".*" * 7 + "...: no JSON value"


def test_a_number_is_compared_as_what_it_stands_for() -> None:
    assert fed(TICKET, '{"priority":5.0,"category":"bug"}').complete
    assert fed(TICKET, '{"priority":50e-1,"category":"bug"}').complete
    assert fed({"enum": [1]}, "1.0\n").complete
    assert fed({"const": True}, "1").problem == "$: not one of the allowed values"


def test_a_limit_holds_for_the_number_as_it_is_written_where_a_float_is_rounded() -> None:
    schema = {"type": "number", "exclusiveMaximum": 0.1}

    assert fed(schema, "0.1\n").feed("") == "invalid"
    assert fed(schema, "0.09999999999999999999\n").feed("") == "complete"


def test_an_endless_number_is_not_kept() -> None:
    progress = fed({"type": "number"}, *["0."], *(["3333"] * 1_000))

    assert progress.feed("e5\n") == "complete"
    assert reasons({"type": "number"}, "0." + "3" * 5_000, ".") == [None, "invalid"]


def test_length_is_counted_in_characters_of_the_text_that_is_meant() -> None:
    assert fed(TICKET, '{"note":"\\u00e9\\ud83d\\ude00😀\\n\\"').feed("") is None
    assert fed(TICKET, '{"note":"\\u00e9\\ud83d\\ude00😀\\n\\"', "x").feed("") == "invalid"
    # A half without its other half is a character.
    assert reasons({"maxLength": 1}, '"\\ud83d', "\\ude00", '"') == [None, None, "complete"]
    assert reasons({"maxLength": 1}, '"\\ud83d', "\\u0041") == [None, "invalid"]


def test_a_chosen_text_may_be_written_with_escapes() -> None:
    assert reasons({"enum": ["é", "😀"]}, '"\\u00', "e9", '"') == [None, None, "complete"]
    assert reasons({"enum": ["é", "😀"]}, '"\\ud83d', "\\ude0", '0"') == [None, None, "complete"]
    assert reasons({"enum": ["é", "😀"]}, '"\\u00e8', '"') == ["invalid", "invalid"]
    assert fed(TICKET, '{"c\\u0061tegory":"b\\u0075g"}').complete


def test_a_property_may_come_twice() -> None:
    assert fed(TICKET, '{"category":"bug","category":"billing"}').complete
    assert fed({"maxProperties": 1}, '{"a":1,"a":2}').complete
    assert fed({"maxProperties": 1}, '{"a":1,"\\u0061":2,"b').feed('"') == "invalid"


def test_a_property_may_have_no_name() -> None:
    schema = {"properties": {"": {"type": "null"}}, "required": [""], "additionalProperties": False}

    assert fed(schema, '{"":null}').complete
    assert fed(schema, '{"":1').problem == '"": not of the type null'


def test_nothing_is_valid_for_a_schema_that_is_false() -> None:
    assert reasons(False, "{") == ["invalid"]
    assert fed({"properties": {"a": False}}, '{"a"').feed("") == "invalid"


# Sizes


@pytest.mark.parametrize("schema", [None, {"type": "array", "items": {"$ref": "#"}}])
def test_depth_has_no_limit(schema: Any) -> None:
    text = "[" * 10_000 + "]" * 10_000

    progress = JsonProgress(compile_schema(schema))
    for at in range(0, len(text), 4):
        progress.feed(text[at : at + 4])

    assert progress.end == len(text)
    assert fed(schema, text[:10_000], "x").feed("") == "invalid"


@pytest.mark.parametrize(("beginning", "end"), [('["', '"]'), ('{"', '":1}'), ("[0.", "]")])
def test_a_long_token_is_read_in_small_pieces(beginning: str, end: str) -> None:
    progress = fed(None, beginning)
    for _ in range(50_000):
        progress.feed("1234")

    assert progress.feed(end) == "complete"
    assert progress.end == len(beginning) + 200_000 + len(end)

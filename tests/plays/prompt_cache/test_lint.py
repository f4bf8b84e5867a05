"""The linter points at what changes in what should not, says where, and leaves everything as it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.prompts import Prompt, lint, stable, volatile

POLICY = "Be kind. Refunds take 5 to 7 business days. Book at most 2 flights, such as HAT001 on 2024-05-01."
UUID = "7b0d9d1e-6b5c-4f0e-9d3f-0a1b2c3d4e5f"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "ask", "description": "Ask."}},
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {
                    "day": {"type": "string", "description": "The day, such as '2024-05-01', '2024-05-02'."},
                    "data": {"type": "string", "description": f"For session {UUID}."},
                },
                "examples": [{"day": "2024-05-01"}],
            },
        },
    },
]


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", "2026-11-22T10:04:33Z"),
        ("timestamp", "Monday, 3 March 2025, 10:04 AM"),
        ("uuid", UUID),
        ("counter", "17"),
        ("random", "9f8e7d6c5b4a39281706"),
    ],
)
def test_a_value_that_changes_is_found_where_it_stands(kind: str, value: str) -> None:
    before = "Be kind. This is request #" if kind == "counter" else "Be kind. Now: "
    (finding,) = lint([system(f"{before}{value} (go on)"), user("Hi.")])

    assert (finding.path, finding.kind) == ("messages[0].content", kind)
    assert (finding.start, finding.end) == (len(before), len(before) + len(value))
    assert "messages[0].content" in finding.message
    assert value not in finding.message.replace(f"{finding.start:,}", "").replace(f"{finding.end:,}", "")


def test_what_need_not_be_stable_may_change() -> None:
    now = "It is 2026-11-22 10:04:33."

    assert lint([system(POLICY), user(now), {"role": "assistant", "content": now}, system(now)]) == []
    assert lint([volatile(now), system(POLICY), user("Hi.")]) == []
    assert lint(Prompt(stable=POLICY, session=now, volatile=now)) == []


def test_what_is_stable_is_named_by_its_place_in_the_list_given() -> None:
    now = "It is 2026-11-22 10:04:33."
    text = {"type": "text", "text": now}
    messages = [
        volatile(now),
        {"role": "developer", "content": [volatile(text), text]},
        user("Hi."),
        stable(user([text])),
        user([text, stable(text)]),
    ]
    before = copy.deepcopy(messages)

    assert [finding.path for finding in lint(messages)] == [
        "messages[1].content[1].text",
        "messages[3].content[0].text",
        "messages[4].content[1].text",
    ]
    assert messages == before


def test_tools_and_formats_are_stable() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "description": "As of 2026-11-22 10:04."}}

    assert [(finding.path, finding.kind) for finding in lint([system(POLICY)], TOOLS, form)] == [
        ("tools[1].function.parameters.properties.data.description", "uuid"),
        ("response_format.json_schema.description", "timestamp"),
    ]


def test_pictures_and_sounds_are_no_text() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8gd29ybGQgMTIzNDU2Nzg5MA=="}},
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8gd29ybGQgMTIzNDU2Nzg5MA==", "format": "wav"}},
    ]

    assert lint([stable(user(parts))]) == []


@pytest.mark.parametrize("messages", ["Hi.", {"role": "user"}, 3])
def test_what_is_no_list_is_refused(messages: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"lint\(\) takes a list of messages, got \w+: put it into a list"):
        lint(messages)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"messages": [1]}, r"lint\(\) takes a list of messages, .* got int for messages\[0\]"),
        ({"messages": [system("a"), None]}, r"got NoneType for messages\[1\]"),
        ({"messages": b"secret"}, r"got bytes: put it into a list"),
        (
            {"messages": [], "tools": "secret"},
            r"lint\(tools=\.\.\.\) takes a list of tools, got str: put it into a list",
        ),
        ({"messages": [], "tools": ["secret"]}, r"lint\(tools=.* got str for tools\[0\]"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_name_and_type(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        lint(**given)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("odd", [[{"role": "system"}], [system(None)], [system(3)]], ids=repr)
def test_what_is_no_text_holds_no_findings(odd: list[Any]) -> None:
    assert lint(odd) == []

"""The linter points at what changes in what should not, says where, and leaves everything as it is."""

from __future__ import annotations

import copy
import random
import uuid
from typing import Any

import pytest
from hypothesis import given, strategies as st

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


def test_finding_names_the_path_and_quotes_no_value() -> None:
    (finding,) = lint([system(f"Be kind. Now: {UUID} (go on)"), user("Hi.")])

    assert (finding.path, finding.kind) == ("messages[0].content", "uuid")
    assert "messages[0].content" in finding.message
    assert UUID not in finding.message


def test_lint_ignores_volatile_messages() -> None:
    now = "It is 2026-11-22 10:04:33."

    assert lint([system(POLICY), user(now), {"role": "assistant", "content": now}, system(now)]) == []
    assert lint([volatile(now), system(POLICY), user("Hi.")]) == []
    assert lint(Prompt(stable=POLICY, session=now, volatile=now)) == []


def test_findings_use_indexes_of_the_given_list() -> None:
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
def test_unsendable_value_is_refused_by_name_and_type(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        lint(**given)

    assert "secret" not in str(refused.value)


def find(text: str) -> list[tuple[str, int, int]]:
    return [(finding.kind, finding.start, finding.end) for finding in lint([system(text)])]


TIMES = (
    "2025-03-03", "2025-03-03T10:04:33Z", "2025-03-03 10:04:33.123456+00:00", "Mon, 03 Mar 2025 10:04:33 GMT",
    "Monday, 3 March 2025, 10:04 AM", "Monday, March 3rd, 2025", "March 3, 2025", "1741000000", "1741000000123",
    "1741000000.25", "10:04:33", "10:04 AM", "03/03/2025", "3.3.2025 10:04", "Mon Mar  3 10:04:33 2025",
    "20250303T100433Z", "10 PM", "03/Mar/2025:10:04:33 +0000", "2025年3月3日",
    "2024-05-15 15:00:00 EST",
)  # fmt: skip
FRAMES = ("{}", "It is {}.", '{{"at": "{}", "of": 1}}', "[{}] hello", "now={}; go")


RANDOM = ("a3f4c2b1", "9c0d1e2f3a4b5c6d", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "call_0f9e8d7c6b5a4f3e", "K7fJq2LmP0xZ")


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("expected", "written"), [*(("timestamp", one) for one in TIMES), *(("random", one) for one in RANDOM)]
)
def test_time_or_random_token_is_found_with_exact_bounds(expected: str, written: str, frame: str) -> None:
    text = frame.format(written)
    ((kind, start, end),) = find(text)
    assert (kind, text[start:end]) == (expected, written)


@given(drawn=st.uuids(version=4), frame=st.sampled_from(FRAMES), upper=st.booleans(), plain=st.booleans())
def test_uuid_is_found_in_every_notation(drawn: uuid.UUID, frame: str, upper: bool, plain: bool) -> None:
    written = drawn.hex if plain else str(drawn)
    written = written.upper() if upper else written
    text = frame.format(written)
    ((kind, start, end),) = find(text)
    assert (kind, text[start:end]) == ("uuid", written)


@pytest.mark.parametrize(
    "text", ["This is request #17.", "Turn 3 of many", '{"seq": 512}', "request_id: 17", "no. 1,024"]
)
def test_number_after_a_counting_word_is_a_counter(text: str) -> None:
    ((kind, start, end),) = find(text)
    assert kind == "counter"
    assert text[start:end].replace(",", "").isdigit()


@pytest.mark.parametrize(
    "text",
    [
        "You may take 2 bags of 23 kg each, at $50 per bag, within 24 hours of booking.",
        "See get_user_details, camelCaseNames, HTTP/2, UTF-8, sha256sum, version2 and 2ndAttempt.",
        "Use IATA codes such as 'SFO', the id 'sara_doe_496' and flights such as 'HAT001'.",
        "May I march on? Sun and sat, a second, the date, may be.",
        "internationalisation, GetReservationDetailsRequest, __init__, src/app/main.py:12",
    ],
)
def test_numbers_and_calendar_words_are_not_volatile(text: str) -> None:
    assert find(text) == []


@given(text=st.text(st.sampled_from("ab1 2:-.T/#AMZf0"), max_size=60))
def test_values_come_in_order_and_overlap_nowhere(text: str) -> None:
    before = 0
    for _, first, last in find(text):
        assert before <= first < last <= len(text)
        before = last


def test_long_texts_without_borders_are_read_in_good_time() -> None:
    rng = random.Random(3)
    for letters in ("a", "1", "A-", "1:", "aB", "0x", "12.", "- "):
        text = "".join(rng.choices(letters, k=20_000))
        assert sum(last - first for _, first, last in find(text)) <= len(text)

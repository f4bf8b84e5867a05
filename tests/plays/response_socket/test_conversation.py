"""A delta is sent only for a history that is certainly the one that the provider has seen."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from fastlane.plays.response_socket.conversation import SocketTurn, seen_after, turn_of

WORDS = st.text("ab", max_size=2)
INPUTS = st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "system"]), WORDS)
OUTPUTS = st.builds(lambda text: {"type": "message", "role": "assistant", "content": [{"text": text}]}, WORDS)
HISTORIES = st.lists(INPUTS, min_size=1, max_size=4)


def turn(items: list[Any], **fields: Any) -> SocketTurn:
    made = turn_of({"model": "m", "input": items, **fields})
    assert isinstance(made, SocketTurn)
    return made


@given(HISTORIES, st.lists(OUTPUTS, max_size=3), HISTORIES)
def test_continued_history_is_split_at_the_end_of_what_was_seen(
    history: list[Any], output: list[Any], added: list[Any]
) -> None:
    seen = seen_after(turn(history), {"id": "resp_1", "output": [{**item, "id": "x"} for item in output]})
    assert seen is not None
    following = turn([*history, *output, *added], instructions="other")

    assert seen.new_from(following) == len(history) + len(output)


@given(HISTORIES, st.lists(OUTPUTS, max_size=3), st.lists(INPUTS | OUTPUTS, min_size=1, max_size=8))
def test_delta_has_all_that_was_not_seen(history: list[Any], output: list[Any], other: list[Any]) -> None:
    seen = seen_after(turn(history), {"id": "resp_1", "output": output})
    assert seen is not None
    start = seen.new_from(turn(other))

    if start is not None:
        assert json.dumps([*history, *output]) == json.dumps(other[:start])
        assert start < len(other)


def test_reasoning_is_the_same_only_with_its_id() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    seen = seen_after(turn([{"role": "user", "content": "a"}]), {"id": "resp_1", "output": [item]})
    assert seen is not None
    history = [{"role": "user", "content": "a"}, item, {"role": "user", "content": "b"}]

    assert seen.new_from(turn(history)) == 2
    assert seen.new_from(turn([history[0], {**item, "id": "rs_2"}, history[2]])) is None
    assert seen.new_from(turn([history[0], history[2]])) is None


def test_body_that_is_not_plain_json_is_not_read() -> None:
    assert turn_of({"model": "m", "input": [{"role": object()}]}) == "its body is not plain JSON"
    assert turn_of({"model": "m", "input": []}) == "it has no input"

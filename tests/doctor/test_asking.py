from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from fastlane.doctor._asking import ModelCalls
from fastlane.doctor._session import DoctorSettings
from fastlane.doctor.target import target_of
from tests.transport.scripted_server import Script, ScriptedServer, Seen

Answer = Callable[[dict[str, Any]], tuple[int, int]]
"""Status and output tokens for a request's body."""


@contextmanager
def asking(answer: Answer) -> Iterator[tuple[ModelCalls, list[dict[str, Any]]]]:
    bodies: list[dict[str, Any]] = []

    def respond(seen: Seen) -> Script:
        bodies.append(json.loads(seen.body))
        status, tokens = answer(bodies[-1])
        body = json.dumps({"usage": {"completion_tokens": tokens}} if status == 200 else {"error": {}}).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return Script([head.encode() + body])

    with ScriptedServer(respond) as server:
        asked = ModelCalls(DoctorSettings(target=target_of(server.base_url)), "some-model")
        try:
            yield asked, bodies
        finally:
            asked.close()


def limits(bodies: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(name, body[name]) for body in bodies for name in ("max_completion_tokens", "max_tokens") if name in body]


def test_the_first_name_is_kept_where_it_works() -> None:
    with asking(lambda _body: (200, 1)) as (asked, bodies):
        asked.learn_limit("Say yes.")

    assert limits(bodies) == [("max_completion_tokens", 1)]
    assert (asked.limit_field, asked.least_tokens, asked.refused_limits) == ("max_completion_tokens", 1, ())


def test_a_name_that_is_refused_gives_way_to_the_other() -> None:
    with asking(lambda body: (200, 1) if "max_tokens" in body else (400, 0)) as (asked, _):
        asked.learn_limit("Say yes.")

    assert (asked.limit_field, asked.refused_limits) == ("max_tokens", ("max_completion_tokens",))


def test_a_model_that_needs_more_tokens_is_no_server_that_refuses_a_name() -> None:
    with asking(lambda body: (200, 9) if body.get("max_completion_tokens", 0) >= 16 else (400, 0)) as (asked, _):
        asked.learn_limit("Say yes.")

    assert (asked.limit_field, asked.least_tokens) == ("max_completion_tokens", 16)
    assert asked.refused_limits == ()
    assert asked.body("Say yes.", 1)["max_completion_tokens"] == 16


def test_a_name_that_is_not_heeded_is_asked_once_and_named() -> None:
    with asking(lambda body: (200, 1 if "max_tokens" in body else 64)) as (asked, bodies):
        asked.learn_limit("Say yes.")

    assert limits(bodies) == [("max_completion_tokens", 1), ("max_tokens", 1)]
    assert (asked.limit_field, asked.unheeded_limits) == ("max_tokens", ("max_completion_tokens",))


def test_a_server_that_heeds_no_limit_is_asked_twice_and_no_more() -> None:
    with asking(lambda _body: (200, 64)) as (asked, bodies):
        asked.learn_limit("Say yes.")

    assert len(bodies) == 2
    assert asked.unheeded_limits == ("max_completion_tokens", "max_tokens")


@pytest.mark.parametrize(("status", "requests"), [(400, 5), (401, 1), (500, 1)])
def test_a_server_that_refuses_everything_raises_its_error(status: int, requests: int) -> None:
    with asking(lambda _body: (status, 0)) as (asked, bodies), pytest.raises(openai.APIStatusError) as raised:
        asked.learn_limit("Say yes.")

    assert raised.value.status_code == status
    assert len(bodies) == requests

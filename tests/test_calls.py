"""A call ends as the stock client's does: retries, errors, cancellation, patched code."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import _base_client

import fastlane
from fastlane import Call, Connection, Stage
from tests.call_peer import JSON, Asked, CallPeer, Reply, ask, async_ours, both, ours, outcome, stock
from tests.session_play import SessionPlay
from tests.waiting import Form, inner_of


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which openai wanted to wait, which it need not."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(_base_client, "time", SimpleNamespace(sleep=slept.append, time=lambda: 0.0))
    monkeypatch.setattr(_base_client, "anyio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(_base_client, "random", lambda: 0.5)
    return slept


def error(status: int, *headers: tuple[str, str], body: bytes = b'{"error": {"message": "no", "code": "c"}}') -> Reply:
    return Reply(status, (JSON, ("x-request-id", "req_2"), *headers), body)


SCRIPTS: dict[str, list[Reply]] = {
    **{f"{status}": [error(status)] for status in (408, 409, 429, 500)},
    **{f"{status} for good": [error(status)] * 9 for status in (400, 401, 409, 429, 500)},
    "seconds to wait": [error(429, ("retry-after", "3"))],
    "milliseconds to wait": [error(503, ("retry-after-ms", "250"))],
    "too long to wait": [error(429, ("retry-after", "500"))],
    "a day to wait for": [error(429, ("retry-after", "Thu, 01 Jan 1970 00:00:07 GMT"))],
    "not to be retried": [error(500, ("x-should-retry", "false"))],
    "to be retried": [error(400, ("x-should-retry", "true"))],
    "errors that differ": [error(500), error(429), error(409, ("retry-after", "1"))],
    "broken off": [Reply(0)],
    "broken off for good": [Reply(0)] * 9,
    "broken off, then an error": [Reply(0), error(500)],
    "an error, then broken off": [error(500), Reply(0)],
    "an empty error": [error(500, body=b"")] * 9,
    "an error in HTML": [Reply(502, (("content-type", "text/html"),), b"<html>")] * 9,
    "no redirect": [Reply(304, (), b"")] * 9,
}

# Scripts with a pause that openai's client follows: it is the least that ours waits.
ANNOUNCED = {"seconds to wait", "milliseconds to wait", "a day to wait for", "errors that differ"}


def attempts(client: Any) -> Any:
    """What the records of our calls say of their attempts."""
    return [
        (call.outcome, call.error, len(call.attempts), [one.status_code for one in call.attempts])
        for call in client.calls
    ]


TASKS = ("500", "429 for good", "seconds to wait", "broken off", "broken off for good", "to be retried")


@pytest.mark.parametrize(
    ("form", "name", "stream"),
    [*(("sync", name, stream) for name in SCRIPTS for stream in (False, True)), *(("async", n, False) for n in TASKS)],
    indirect=["form"],
)
def test_retries_and_outcome_match_the_stock_client(
    form: Form, one_peer: CallPeer, name: str, stream: bool, slept: list[float]
) -> None:
    peer = one_peer

    def made(client: Any) -> tuple[Any, list[Asked], list[float]]:
        for _ in range(2):
            _whole(ask(client, stream=stream))
        peer.take()
        slept.clear()
        ends = []
        for options in ({}, {"timeout": 20}, {"extra_headers": {"x-a": "1"}}):
            peer.replies[:] = SCRIPTS[name]
            ends.append(outcome(lambda: _whole(ask(client, stream=stream, **options))))  # noqa: B023
            peer.replies.clear()
        return ends, peer.take(), list(slept)

    with stock(peer, form, max_retries=3) as client:
        expected = made(client)
    with ours(peer, form, max_retries=3) as client:
        found = made(client)
        recorded = attempts(client)[2:]
    assert found[:2] == expected[:2]
    for wait_s, openais_s in zip(found[2], expected[2], strict=True):
        assert openais_s <= wait_s <= openais_s * (1.25 if name in ANNOUNCED else 1.0)
    assert (found[2] != expected[2]) == (name in ANNOUNCED)
    asked = expected[1]
    assert sum(call[2] for call in recorded) == len(asked)
    assert len(recorded) == 3


def _whole(answer: Any) -> Any:
    return len(list(answer)) if isinstance(answer, openai.Stream) else answer


@pytest.mark.parametrize("retries", [0, 1])
def test_timeout_and_retries_match_the_stock_client(peer: CallPeer, retries: int, slept: list[float]) -> None:
    def made(client: Any) -> tuple[Any, list[Asked], list[float]]:
        ask(client, timeout=0.2)
        ask(client, timeout=0.2)
        slept.clear()
        peer.take()
        peer.hold.clear()
        end = outcome(lambda: ask(client, timeout=0.2))
        peer.hold.set()
        return end, peer.take(), list(slept)

    with stock(peer, max_retries=retries) as client:
        expected = made(client)
    assert expected[0]["class"] is openai.APITimeoutError
    with ours(peer, max_retries=retries) as client:
        assert made(client) == expected
        assert attempts(client)[-1][:3] == ("failed", "APITimeoutError", retries + 1)


def test_retries_send_the_body_of_the_first_attempt(peer: CallPeer, slept: list[float]) -> None:
    with ours(peer, max_retries=3) as client:
        for _ in range(3):
            messages: list[Any] = [{"role": "user", "content": "Name a river."}]
            peer.replies[:] = [error(500)] * 3
            peer.before = lambda _: messages[0].update(content=messages[0]["content"] + "!")  # noqa: B023
            client.chat.completions.create(model="m", messages=messages)
            asked = peer.take()

            assert len(asked) == 4
            assert len({one.body for one in asked}) == 1
            assert [one.header("x-stainless-retry-count") for one in asked] == ["0", "1", "2", "3"]
            assert client.calls[-1].outcome == "completed"
            assert [one.number for one in client.calls[-1].attempts] == [1, 2, 3, 4]


@pytest.mark.asyncio
async def test_cancelled_first_attempt_is_not_retried(peer: CallPeer) -> None:
    async with async_ours(peer, max_retries=3) as client:
        for _ in range(2):
            await ask(client)
        peer.take()
        peer.hold.clear()
        task = asyncio.create_task(ask(client))
        await asyncio.to_thread(peer.wait_until_asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        peer.hold.set()
        assert (await ask(client)).id == "chatcmpl-1"

        assert len(peer.asked) == 2
        assert attempts(client)[2][:3] == ("cancelled", "CancelledError", 1)


METHODS = (
    "_prepare_options", "_prepare_request", "_build_request", "_build_headers", "_send_request", "_process_response",
    "_process_response_data", "_should_retry", "_calculate_retry_timeout", "_sleep_for_retry", "_make_status_error",
    "_validate_headers", "_idempotency_key", "_prepare_url", "request", "post",
)  # fmt: skip


def counting(found: Any, name: str, seen: list[str]) -> Any:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(name)
        return found(self, *args, **options)

    return method


def used(peer: CallPeer, client: Any) -> tuple[Any, list[Asked]]:
    ends = []
    for replies in ([], [error(500)], [error(400)], [error(429)] * 5, [Reply(0)], [Reply(0)] * 2):
        for _ in range(2):
            peer.replies[:] = replies
            ends.append(outcome(lambda: ask(client)))
            peer.replies.clear()
    return ends, peer.take()


@pytest.mark.parametrize("bases", [[fastlane.OpenAI], [fastlane.OpenAI, openai.OpenAI]], ids=["before", "behind"])
@pytest.mark.parametrize("name", METHODS)
def test_overridden_method_is_called_as_often_as_in_stock(
    one_peer: CallPeer, name: str, bases: list[Any], slept: list[float]
) -> None:
    def made(make: Callable[..., Any], *bases: Any) -> Any:
        seen: list[str] = []
        theirs = type("Theirs", bases[-1:], {})
        setattr(theirs, name, counting(getattr(theirs, name), name, seen))
        kind, plain = type("Mine", (*bases[:-1], theirs), {}), make(one_peer)
        with kind(api_key="sk-test", base_url=plain.base_url, http_client=plain._client, max_retries=1) as client:
            return used(one_peer, client), seen

    assert made(ours, *bases) == made(stock, openai.OpenAI)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("where", "first"),
    [("openai.OpenAI", True), ("openai.OpenAI", False), ("the base class", False), ("the client", False)],
)
def test_patched_openai_method_sees_the_same_calls_as_in_stock(
    one_peer: CallPeer, name: str, where: str, first: bool, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(make: Callable[..., Any]) -> Any:
        seen: list[str] = []
        with monkeypatch.context() as patch:

            def replace(client: Any) -> None:
                if where == "the client":
                    method = counting(getattr(type(client), name), name, seen)
                    patch.setattr(client, name, lambda *args, **options: method(client, *args, **options))
                else:
                    owner = openai.OpenAI if where == "openai.OpenAI" else _base_client.SyncAPIClient
                    patch.setattr(owner, name, counting(getattr(owner, name), name, seen))

            if first and where != "the client":
                replace(None)
            with make(one_peer, max_retries=1) as client:
                if not first:
                    ask(client)
                    ask(client)
                    one_peer.take()
                if not first or where == "the client":
                    replace(client)
                return used(one_peer, client), seen

    expected, found = made(stock), made(ours)
    if name == "post" and not first:
        # The stock client's resources keep the method that there was when they were made; ours look for it.
        assert found[0] == expected[0]
        return
    assert found == expected


@pytest.mark.parametrize("options", [{}, {"headers": {"x-a": "1"}}, {"url": "/y"}])
@pytest.mark.parametrize("arguments", [{"cast_to": object}, {}, {"cast_to": object, "content": b"c"}, {"cast_to": str}])
def test_post_with_odd_arguments_ends_as_the_stock_clients(
    peer: CallPeer, options: dict[str, Any], arguments: dict[str, Any]
) -> None:
    def made(client: Any) -> tuple[list[Any], list[Asked]]:
        ends = [outcome(lambda: client.post("/x", body={"a": 1}, options=options, **arguments)) for _ in range(3)]
        for end in ends:
            if isinstance(end, dict):  # whose method it is that misses something is part of the text
                end["said"] = end["said"].rpartition(".")[2]
        return ends, peer.take()

    found, expected = both(made, peer)
    assert found == expected


def test_azures_clients_send_what_the_stock_ones_send(peer: CallPeer) -> None:
    def made(kind: Any, make: Callable[..., Any]) -> tuple[list[Any], list[Asked]]:
        http_client = make(peer)._client
        with kind(
            api_key="k", azure_endpoint=peer.url, api_version="2024-10-21", http_client=http_client, max_retries=1
        ) as client:
            ends = [outcome(lambda: ask(client)) for _ in range(3)]
            peer.replies[:] = [error(500, ("retry-after-ms", "1"))]
            ends.append(outcome(lambda: ask(client)))
            client.api_key = "k2"
            return [*ends, outcome(lambda: ask(client))], peer.take()

    assert made(fastlane.AzureOpenAI, ours) == made(openai.AzureOpenAI, stock)


def test_callable_api_key_is_called_before_each_attempt(peer: CallPeer, slept: list[float]) -> None:
    def made(make: Callable[..., Any]) -> list[Asked]:
        keys = iter(f"sk-{number}" for number in range(100))
        with make(peer, api_key=lambda: next(keys), max_retries=2) as client:
            for _ in range(2):
                peer.replies[:] = [error(500), error(500)]
                ask(client)
        return peer.take()

    assert made(ours) == made(stock)


def left_of(error: BaseException) -> list[weakref.ref[Any]]:
    """Whether an error and the errors behind it are still there."""
    found: list[weakref.ref[Any]] = []
    behind: BaseException | None = error
    while behind is not None:
        if not isinstance(behind, OSError):  # which nothing can refer to weakly
            found.append(weakref.ref(behind))
        behind = behind.__cause__
    return found


def left_of_a_call(client: Any, form: Form) -> list[weakref.ref[Any]]:
    """What is still there of the error of a call; no frame of the test's keeps it."""

    async def asked() -> list[weakref.ref[Any]]:
        try:
            await ask(client)
        except openai.APIConnectionError as error:
            return left_of(error)
        return []

    if form.asynchronous:
        found: list[weakref.ref[Any]] = form.run(asked())
        return found
    try:
        ask(client)
    except openai.APIConnectionError as error:
        return left_of(error)
    return []


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("server", ["breaks off", "is not there"])
def test_error_is_freed_with_its_last_reference(form: Form, peer: CallPeer, server: str) -> None:
    options = {"base_url": "http://127.0.0.1:9/v1"} if server == "is not there" else {}
    with ours(peer, form, **options) as client:
        for _ in range(3):  # the last by the fast path
            peer.replies[:] = [Reply(0)]
            left = left_of_a_call(inner_of(client), form)
            assert len(left) > 1
            assert [one() for one in left] == [None] * len(left)
            if not options:
                ask(client)


@dataclass(frozen=True)
class Redacts(SessionPlay):
    """Changes in place what it should have copied."""

    stage = Stage.SHAPE

    def plan(self, call: Call) -> Call:
        call.body["messages"][0]["content"] = "redacted"
        return call


def test_nested_body_change_of_a_play_is_sent(one_peer: CallPeer) -> None:
    with ours(one_peer) as made:
        client = made.copy(only_plays=[Connection(http2="never"), Redacts()])
        for _ in range(3):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a secret"}])

    assert [b"redacted" in asked.body and b"secret" not in asked.body for asked in one_peer.take()] == [True] * 3

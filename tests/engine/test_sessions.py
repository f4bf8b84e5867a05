"""The hooks of a session, through a sync and an async client."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from fastlane import Call, Connection, Play, Session, Stage
from fastlane.engine.effects import Sleep
from fastlane.records import RecordSection
from tests.call_peer import JSON, CallPeer, Reply, ours
from tests.waiting import Form

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
REFUSAL = b'{"error": {"message": "unknown field: note", "code": "c"}}'


def asked(peer: CallPeer, form: Form, *plays: Play, **arguments: Any) -> Any:
    """Make a call. Returns what came of it, and the client."""
    with ours(peer, form, max_retries=1) as made:
        client = made.copy(only_plays=[Connection(http2="never"), *plays])
        return client.chat.completions.create(model="m", messages=MESSAGES, **arguments), client


@dataclass(frozen=True)
class Odd(Play):
    """A play whose sessions raise in a hook, or return something else than it is to return."""

    hook: str
    found: Any

    def open(self, call: Call) -> Any:
        def odd(*_: Any) -> Any:
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

        return odd() if self.hook == "open" else type("OddSession", (Session,), {self.hook: odd})()


@pytest.mark.parametrize("hook", ["open", "around_call", "plan", "around_attempt", "on_request", "close"])
@pytest.mark.parametrize("found", [5, "text", ValueError("broken")], ids=repr)
def test_hook_that_raises_or_has_an_odd_result_is_skipped(
    one_peer: CallPeer, form: Form, hook: str, found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer, client = asked(one_peer, form, Odd(hook, found))

    assert answer.choices[0].message.content == "Rhine"
    assert client.last_call.outcome == "completed"
    assert client.last_call.to_dict()["outcome"] == "completed"
    assert f"Odd raised {'ValueError' if isinstance(found, ValueError) else 'TypeError'} in {hook}" in caplog.text


@pytest.mark.parametrize("timeout", ["5", float("nan"), -1.0, openai.Timeout(5.0, read=float("nan"))], ids=repr)
def test_impossible_timeout_is_an_error_before_anything_is_sent(one_peer: CallPeer, form: Form, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError, openai.APIConnectionError)):
        asked(one_peer, form, timeout=timeout)

    assert one_peer.asked == []


@dataclass(frozen=True)
class Noting(Play):
    """Notes which hooks are called, in order."""

    stage = Stage.SEND
    notes: list[Any] = field(default_factory=list, compare=False, repr=False)

    def open(self, call: Call) -> Session | None:
        self.notes.append("open")
        return NotingSession(self.notes)


@dataclass(frozen=True)
class NotingSection(RecordSection):
    """How many notes there were."""

    notes: int


class NotingSession(Session):
    def __init__(self, notes: list[Any]) -> None:
        self._notes = notes

    def around_call(self, send: Any) -> Any:
        def noted(call: Call) -> Any:
            self._notes.append("call")
            reply = yield from send(call)
            self._notes.append("result")
            return reply

        return noted

    def plan(self, call: Call) -> Call:
        self._notes.append("plan")
        return call

    def around_attempt(self, send: Any) -> Any:
        def noted(attempt: Any) -> Any:
            self._notes.append("attempt")
            reply = yield from send(attempt)
            self._notes.append(reply.response.status_code)
            reply.on_end(lambda outcome: self._notes.append(f"end: {outcome}"))
            return reply

        return noted

    def on_request(self, request: Any) -> Any:
        self._notes.append("request")
        return request

    def close(self, outcome: Any) -> NotingSection:
        self._notes.append(f"close: {outcome.ending}, {outcome.usage.output_tokens}, {len(outcome.record.attempts)}")
        return NotingSection(len(self._notes))


def test_hooks_run_in_their_order(one_peer: CallPeer, form: Form) -> None:
    play = Noting()
    one_peer.replies[:] = [Reply(500, (JSON, ("retry-after-ms", "1")), b"{}")]

    _, client = asked(one_peer, form, play)

    assert client.last_call.sections == (NotingSection(13),)
    assert play.notes == [
        "open", "call", "plan",
        "attempt", "request", 500, "end: completed",
        "attempt", "request", 200, "end: completed",
        "result", "close: completed, 1, 2",
    ]  # fmt: skip


@dataclass(frozen=True)
class Adding(Play):
    """Adds a field, and takes it back where it is refused; changes the bytes of the body."""

    def open(self, call: Call) -> Session | None:
        return AddingSession()


class AddingSession(Session):
    def __init__(self) -> None:
        self._adds = True

    def plan(self, call: Call) -> Call:
        return call.with_body("added a note", note="n") if self._adds else call

    def on_refused(self, error: openai.APIStatusError) -> bool:
        refused, self._adds = self._adds and "note" in error.message, False
        return refused

    def on_request(self, request: Any) -> Any:
        request.headers["x-checked"] = str(len(request.content))
        return request


def test_refused_field_is_taken_back_without_a_retry(one_peer: CallPeer, form: Form) -> None:
    one_peer.replies[:] = [Reply(400, (JSON,), REFUSAL)]

    _, client = asked(one_peer, form, Adding())

    first, second = one_peer.take()
    assert b'"note"' in first.body
    assert b'"note"' not in second.body
    assert second.header("x-stainless-retry-count") == "0"
    assert second.header("x-checked") == str(len(second.body))
    assert [attempt.kind for attempt in client.last_call.attempts] == ["first", "plain"]


def test_play_that_always_plans_again_gets_five_more_tries(one_peer: CallPeer, form: Form) -> None:
    class Stubborn(Session):
        def on_refused(self, error: openai.APIStatusError) -> bool:
            return True

    one_peer.replies[:] = [Reply(400, (JSON,), REFUSAL)] * 9
    with pytest.raises(openai.BadRequestError):
        asked(one_peer, form, Odd("open", Stubborn()))
    assert len(one_peer.take()) == 6


@dataclass(frozen=True)
class Pausing(Play):
    """Waits after an error of the provider, and sends the call again."""

    def open(self, call: Call) -> Session | None:
        return PausingSession()


class PausingSession(Session):
    def around_call(self, send: Any) -> Any:
        def again(call: Call) -> Any:
            try:
                return (yield from send(call))
            except openai.InternalServerError:
                yield Sleep(None, 0.001)
                return (yield from send(call))

        return again


def test_around_call_hook_can_retry_after_a_pause(one_peer: CallPeer, form: Form) -> None:
    failed = Reply(500, (JSON, ("x-should-retry", "false")), b"{}")
    one_peer.replies[:] = [failed]

    answer, client = asked(one_peer, form, Pausing())

    assert answer.choices[0].message.content == "Rhine"
    assert [attempt.status_code for attempt in client.last_call.attempts] == [500, 200]


@dataclass(frozen=True)
class Keeping(Play):
    """A play whose sessions keep their call."""

    opened: list[weakref.ref[Session]] = field(default_factory=list, compare=False, repr=False)

    def open(self, call: Call) -> Session | None:
        session = KeepingSession(call)
        self.opened.append(weakref.ref(session))
        return session


class KeepingSession(Session):
    def __init__(self, call: Call) -> None:
        self.call = call


def test_section_that_is_made_later_keeps_no_other_session(one_peer: CallPeer, form: Form) -> None:
    keeping = Keeping()
    _, client = asked(one_peer, form, keeping, Odd("close", lambda _: NotingSection(notes=3)))
    gc.collect()

    assert [opened() for opened in keeping.opened] == [None]
    assert client.last_call.get(NotingSection).notes == 3

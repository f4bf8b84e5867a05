"""The hooks of a session, through a sync and an async client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from fastlane import Call, Connection, Play, Stage
from fastlane.engine.effects import Acquire, Sleep
from fastlane.engine.session import STOP, Session
from fastlane.records.section import RecordSection
from tests.call_peer import JSON, CallPeer, Reply, ours
from tests.waiting import SYNC, Form

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
REFUSAL = b'{"error": {"message": "unknown field: note", "code": "c"}}'
CHUNK = (
    b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", '
    b'"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}\n\n'
)


def asked(peer: CallPeer, form: Form, *plays: Play, **arguments: Any) -> Any:
    """Make a call. Returns what came of it, and the client."""
    with ours(peer, form, max_retries=1) as made:
        client = made.copy(only_plays=[Connection(http2="never"), *plays])
        answer = client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **arguments})
        return (list(answer) if arguments.get("stream") else answer), client


@dataclass(frozen=True)
class Odd(Play):
    """A play whose sessions return something else than a hook is to return."""

    hook: str
    found: Any

    def open(self, call: Call) -> Any:
        if self.hook == "open":
            return self.found
        hooks = {self.hook: lambda session, argument: self.found}
        return type("OddSession", (Session,), hooks)()


@pytest.mark.parametrize("hook", ["open", "around_call", "plan", "around_attempt", "on_request", "close"])
@pytest.mark.parametrize("found", [5, "text"])
def test_hook_with_an_odd_result_is_skipped(
    one_peer: CallPeer, form: Form, hook: str, found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer, client = asked(one_peer, form, Odd(hook, found))

    assert answer.choices[0].message.content == "Rhine"
    assert client.last_call.outcome == "completed"
    assert client.last_call.to_dict()["outcome"] == "completed"
    assert f"Odd raised TypeError in {hook}" in caplog.text


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

    def on_event(self, event: Any) -> Any:
        self._notes.append("event")
        return STOP

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


def test_on_event_stops_a_stream(one_peer: CallPeer, form: Form) -> None:
    play = Noting()
    one_peer.replies[:] = [Reply(200, (("content-type", "text/event-stream"),), CHUNK * 3 + b"data: [DONE]\n\n")]

    events, client = asked(one_peer, form, play, stream=True)

    assert len(events) == 1
    assert client.last_call.outcome == "stopped"
    assert play.notes[-3:] == ["event", "end: stopped", "close: stopped, None, 1"]


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


def test_a_refused_field_is_taken_back_without_a_retry(one_peer: CallPeer, form: Form) -> None:
    one_peer.replies[:] = [Reply(400, (JSON,), REFUSAL)]

    _, client = asked(one_peer, form, Adding())

    first, second = one_peer.take()
    assert b'"note"' in first.body
    assert b'"note"' not in second.body
    assert second.header("x-stainless-retry-count") == "0"
    assert second.header("x-checked") == str(len(second.body))
    assert [attempt.kind for attempt in client.last_call.attempts] == ["first", "plain"]


@dataclass(frozen=True)
class AskingAgain(Play):
    """Asks again until the answer has come twice."""

    def open(self, call: Call) -> Session | None:
        return AskingAgainSession()


class AskingAgainSession(Session):
    def around_call(self, send: Any) -> Any:
        def twice(call: Call) -> Any:
            reply = yield from send(call)
            assert reply.result.choices[0].message.content == "Rhine"
            said = [*call.body["messages"], {"role": "user", "content": "Another one."}]
            return (yield from send(call.with_body("asked again", messages=said)))

        return twice


def test_around_call_sends_again_with_another_body(one_peer: CallPeer, form: Form) -> None:
    _, client = asked(one_peer, form, AskingAgain())

    first, second = one_peer.take()
    assert b"Another one." not in first.body
    assert b"Another one." in second.body
    assert len(client.calls) == 1


class Slots:
    """One slot."""

    def __init__(self) -> None:
        self.holder: Slot | None = None
        self.waiting: list[Slot] = []
        self.lock = threading.Lock()


class Slot:
    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._wake: Callable[[], object] | None = None

    @property
    def is_granted(self) -> bool:
        return self._slots.holder is self

    def start(self, wake: Callable[[], object]) -> None:
        with self._slots.lock:
            self._wake = wake
            if self._slots.holder is None:
                self._slots.holder = self
            else:
                self._slots.waiting.append(self)

    def release(self) -> None:
        with self._slots.lock:
            slots = self._slots
            if self in slots.waiting:
                slots.waiting.remove(self)
            if slots.holder is not self:
                return
            slots.holder = following = slots.waiting.pop(0) if slots.waiting else None
        if following is not None and following._wake is not None:
            following._wake()


@dataclass(frozen=True)
class Limited(Play):
    """One attempt at a time."""

    stage = Stage.SEND
    slots: Slots = field(default_factory=Slots, compare=False, repr=False)
    http: Any = None
    timeout_s: float | None = None

    def open(self, call: Call) -> Session | None:
        return LimitedSession(self)


class LimitedSession(Session):
    def __init__(self, play: Limited) -> None:
        self._play = play

    def around_attempt(self, send: Any) -> Any:
        def in_slot(attempt: Any) -> Any:
            slot = Slot(self._play.slots)
            try:
                yield Acquire(self._play.http, slot, self._play.timeout_s)
                reply = yield from send(attempt)
                reply.on_end(lambda outcome: slot.release())
            except BaseException:
                slot.release()
                raise
            return reply

        return in_slot


class Open:
    """An HTTP client that is open."""

    is_closed = False


def test_an_attempt_waits_for_its_slot(one_peer: CallPeer, form: Form) -> None:
    play = Limited(http=Open())
    before = Slot(play.slots)
    before.start(lambda: None)
    one_peer.replies[:] = [Reply(500, (JSON, ("retry-after-ms", "1")), b"{}")]
    threading.Timer(0.05, before.release).start()

    asked(one_peer, form, play)

    assert len(one_peer.take()) == 2
    assert play.slots.holder is None


def test_an_attempt_that_gets_no_slot_in_time_is_not_sent(one_peer: CallPeer, form: Form) -> None:
    play = Limited(http=Open(), timeout_s=0.01)
    before = Slot(play.slots)
    before.start(lambda: None)

    with pytest.raises(TimeoutError):
        asked(one_peer, form, play)

    assert one_peer.take() == []
    assert play.slots.waiting == []


def test_a_stream_keeps_its_slot_until_it_ends(one_peer: CallPeer) -> None:
    play = Limited(http=Open())
    one_peer.replies[:] = [Reply(200, (("content-type", "text/event-stream"),), CHUNK * 3 + b"data: [DONE]\n\n")]
    with ours(one_peer) as made:
        client = made.copy(only_plays=[Connection(http2="never"), play])
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        next(iter(stream))
        assert play.slots.holder is not None
        stream.close()
        assert play.slots.holder is None


@dataclass(frozen=True)
class Broken(Play):
    """Raises in a hook."""

    hook: str = "open"

    def open(self, call: Call) -> Session | None:
        if self.hook == "open":
            raise ValueError("open")

        def fails(self: Session, *arguments: Any) -> Any:
            raise ValueError("broken")

        kind: type[Session] = type("BrokenSession", (Session,), {self.hook: fails})
        return kind()


@pytest.mark.parametrize("hook", ["open", "around_call", "plan", "around_attempt", "on_request", "close"])
def test_a_hook_that_raises_is_left_out_and_logged(
    one_peer: CallPeer, hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, client = asked(one_peer, SYNC, Broken(hook))

    assert answer.choices[0].message.content == "Rhine"
    assert client.last_call.outcome == "completed"
    assert f"Broken raised ValueError in {hook}" in caplog.text


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


def test_around_call_sleeps_and_sends_again(one_peer: CallPeer, form: Form) -> None:
    failed = Reply(500, (JSON, ("x-should-retry", "false")), b"{}")
    one_peer.replies[:] = [failed]

    answer, client = asked(one_peer, form, Pausing())

    assert answer.choices[0].message.content == "Rhine"
    assert [attempt.status_code for attempt in client.last_call.attempts] == [500, 200]

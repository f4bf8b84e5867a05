"""One call's part of unbroken streams: its gaps, what has been received, and how it goes on after a break."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.compat.responses import Reply, openai_error_class
from fastlane.engine.call import Call
from fastlane.engine.effects import Flow, Sleep
from fastlane.engine.session import CallOutcome, Continuation, SendCall, Session
from fastlane.errors import BrokenStreamError, ReceivedAnswer, StalledStreamError
from fastlane.knowledge.table import Table
from fastlane.protocol.content import (
    RESPONSE_BEGINS,
    RESPONSE_ENDS,
    RESPONSE_KINDS,
    choices_kind,
    error_of,
    error_status,
)
from fastlane.protocol.endpoints import RESPONSES
from fastlane.protocol.fields import ID, field
from fastlane.transport import PATIENCE, PHASES, Patience, Phases

from .continuing import continued, why_not_continued
from .section import How, StreamPart, UnbrokenSection

if TYPE_CHECKING:
    from .play import Unbroken

# Events of a response before its first output.
_OPENING = RESPONSE_BEGINS | {"response.output_item.added", "response.content_part.added"}
_OPENING_ITEMS = (None, "message", "reasoning")
_RETRIED = (408, 409, 429)
_OWN_ERROR = "the provider reported an error"
# As openai's pauses between retries.
_PAUSE_S, _MOST_PAUSE_S = 0.5, 8.0
# Fewer pieces of text say little of the gaps of a stream, and fewer streams little of those of a model.
_FEW = 8
# Longest gaps that are kept of streams of one key, and the share of these streams that the usual gap is of. It is above
# the stalls of a provider that is in trouble, which are learned as well.
_WINDOW, _USUAL = 64, 0.8

Key = tuple[str, str | None, bytes]
"""What gaps are learned by: origin, model and account."""

_longest_s: Table[Key, tuple[float, ...]] = Table("longest gaps of streams", max_entries=2_000, expires_s=86_400)


def usual_gap_s(key: Key) -> float | None:
    """Return the gap that four of five streams stay within, in seconds; None as long as too few were seen."""
    longest = sorted(_longest_s.get(key) or ())
    return longest[int(_USUAL * len(longest))] if len(longest) >= _FEW else None


def note_gap(key: Key, longest_s: float) -> None:
    """Learn the longest gap of one stream, or for how long it has stalled."""
    _longest_s.update(key, lambda known: (*(known or ()), longest_s)[-_WINDOW:])


class UnbrokenSession(Session):
    """Watches one stream, and continues it."""

    def __init__(self, play: Unbroken, call: Call) -> None:
        self._play = play
        self._call = call
        self._send: SendCall | None = None
        self._is_response = call.endpoint == RESPONSES
        # The limits
        self._key: Key = (call.origin, call.model, call.caller.account.here)
        self._usual_s = usual_gap_s(self._key)
        limit_s = play.max_stall_s if self._usual_s is None else self._usual_s * play.stall_factor
        self._stall_ns = int(min(play.max_stall_s, max(play.min_stall_s, limit_s)) * 1e9)
        self._thinking_ns = None if play.max_thinking_s is None else int(play.max_thinking_s * 1e9)
        self._begin_ns = self._thinking_ns
        """How long the first event of the next request may take."""
        # The requests
        self._request: Any = None
        self._patience: Patience | None = None
        self._phases: Phases | None = None
        self._sent = 0
        self._sent_before = 0
        """Requests until the last event, which are no retries of what follows."""
        # What has been received
        self._texts: list[str] = []
        self._has_output = False
        self._has_other_output = False
        self._is_finished = False
        self._is_steady = False
        """Whether the last event was a piece of text: another one has to follow within the limit."""
        self._at_ns = 0
        self._longest_ns = 0
        self._opening: list[Any] = []
        """The kinds of the events before the first output."""
        self._head: dict[str, Any] = {}
        """The id and the model, and of a chunk when it was created."""
        self._sequence = -1
        # How it went on
        self._parts = [StreamPart(how=None, at_character=0)]
        self._pieces_before = 0
        """Pieces of text of the parts before."""
        self._why_not: str | None = None

    def around_call(self, send: SendCall) -> SendCall:
        """Keep the function that sends the call."""

        def send_first(call: Call) -> Flow:
            self._send, self._call = send, call
            return send(call)

        return send_first

    def on_request(self, request: Any) -> Any:
        """Give the request a limit for its waits, which this session sets."""
        patience = request.extensions.setdefault(PATIENCE, Patience())
        self._request, self._patience = request, None
        self._sent += 1
        self._at_ns = now_ns()
        patience.silence_ns = self._begin_ns
        return request

    # While the stream is read

    def on_event(self, event: Any) -> None:
        """Note an event, and how long the next one may take."""
        patience = self._patience
        if patience is None:
            # Not those of `on_request`: the flow may have replaced them.
            extensions = self._request.extensions
            patience = self._patience = extensions.get(PATIENCE) or Patience()
            self._phases = extensions.get(PHASES)
        is_steady = self._read_response(event) if self._is_response else self._read_chunk(event)
        at_ns = (self._phases.chunk_ns if self._phases is not None else 0) or now_ns()
        if is_steady and self._is_steady and at_ns - self._at_ns > self._longest_ns:
            self._longest_ns = at_ns - self._at_ns
        self._at_ns, self._is_steady = at_ns, is_steady
        patience.silence_ns, patience.until_ns = self._stall_ns if is_steady else self._thinking_ns, None

    def _read_chunk(self, chunk: Any) -> bool:
        """Read a chunk. Returns whether another one has to follow soon."""
        if self._has_output:
            # The fast path for nearly every chunk: more text of the only choice.
            try:
                (choice,) = chunk.choices
                text = choice.delta.content
                if text and choice.index == 0 and choice.finish_reason is None:
                    self._texts.append(text)
                    return True
            except (AttributeError, TypeError, ValueError):
                pass
        choices = getattr(chunk, "choices", None)
        if not self._head:
            self._head = {name: field(chunk, name) for name in ("id", "created", "model")}
        if not choices:
            return self._is_steady
        kind = choices_kind(choices)
        if _finishes(choices):
            self._has_output, self._is_finished = True, self._call.body.get("n") in (None, 1)
        if kind is None:
            return self._is_steady
        self._has_output = True
        if kind != "content" or len(choices) > 1 or field(choices[0], "index"):
            self._has_other_output = True
            return kind != "reasoning"
        text = field(field(choices[0], "delta"), "content") or field(choices[0], "text")
        self._texts.append(text if isinstance(text, str) else "")
        return True

    def _read_response(self, event: Any) -> bool:
        """Read an event of a response. Returns whether another one has to follow soon."""
        sequence, kind = field(event, "sequence_number"), field(event, "type")
        if isinstance(sequence, int):
            if sequence <= self._sequence:
                return self._is_steady  # sent twice, and dropped
            self._sequence = sequence
        self._sent_before = self._sent
        if not self._head and kind in RESPONSE_BEGINS:
            response = field(event, "response")
            self._head = {"id": field(response, "id"), "model": field(response, "model")}
        output = RESPONSE_KINDS.get(kind) if isinstance(kind, str) else None
        if output is not None:
            self._has_output = True
            text = field(event, "delta")
            if output == "content" and isinstance(text, str):
                self._texts.append(text)
            return output != "reasoning"
        if kind in _OPENING and field(field(event, "item"), "type") in _OPENING_ITEMS:
            if not self._has_output:
                self._opening.append(kind)
        else:
            self._has_output = True
            # The application gets the provider's error as an event.
            self._is_finished = self._is_finished or kind in RESPONSE_ENDS or kind == "error"
        return False

    # When it breaks

    def on_broken(self, error: Exception) -> Flow | None:
        """Go on, or raise an error that holds what has been received."""
        is_break = isinstance(error, openai.APIError | JSONDecodeError | UnicodeDecodeError)
        return self._go_on(error) if is_break or openai_error_class(error) is not None else None

    def _go_on(self, error: Exception) -> Flow:
        try:
            was_steady, stalled_s = self._is_steady, self._note_break(error)
            if self._is_finished:
                self._why_not = "the answer had ended"
                return None
            how = self._how_to_go_on(error)
            if how is None:
                raise self._error(error, stalled_s)
            if was_steady and how != "repeated":
                self._begin_ns = int(self._play.max_stall_s * 1e9)  # it is not about to think
            retries = self._retries(how)
            if retries:
                yield Sleep(self._call.caller.http_client, min(_MOST_PAUSE_S, _PAUSE_S * 2 ** (retries - 1)))
            call = self._again(how).replaced(max_retries=self._call.caller.max_retries - retries - 1)
            assert self._send is not None
            try:
                reply: Reply = yield from self._send(call)
            except openai.APIError as failed:
                self._why_not = f"the request to go on met {_named(failed)}"
                raise self._error(failed, stalled_s) from failed
            return Continuation(reply, self._joined(how))
        finally:
            del error  # its traceback refers to this frame

    def _note_break(self, error: Exception) -> float | None:
        """Record how a part ended. Returns for how many seconds it had stalled; None if it had not."""
        stalled_s = None
        # openai 2 does not convert errors of reading a stream.
        if isinstance(error, openai.APITimeoutError) or openai_error_class(error) is openai.APITimeoutError:
            stalled_s = (now_ns() - self._at_ns) / 1e9
            if self._is_steady:
                note_gap(self._key, stalled_s)  # perhaps the provider has become slow
        self._is_steady = False
        self._parts[-1] = replace(self._parts[-1], error=type(error).__name__, stalled_s=stalled_s)
        return stalled_s

    def _how_to_go_on(self, error: Exception) -> How | None:
        """Return how to go on; None to raise the error, for a reason that is noted."""
        if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
            status = error_status(error_of(error.body) or {})
            if self._has_output or (status < 500 and status not in _RETRIED):
                self._why_not = _OWN_ERROR
                return None
        response_id, body = self._head.get("id"), self._call.body
        how: How = "repeated"
        # Without a number, all that has been received would come again.
        is_background = body.get("background") is True and self._sequence >= 0
        if is_background and isinstance(response_id, str) and ID.fullmatch(response_id):
            how = "resumed"
        elif self._has_output:
            how = "continued"
            if self._play.on_break != "continue":
                self._why_not = "a part of the answer had been received"
            else:
                only_text = not self._has_other_output
                self._why_not = why_not_continued(self._call, only_text=only_text, text="".join(self._texts))
        elif body.get("conversation") is not None:
            self._why_not = "the provider holds the conversation, and would hold the request twice"
        if self._call.caller.http_client.is_closed:
            self._why_not = "the client was closed"
        elif self._why_not is None and self._retries(how) >= self._call.caller.max_retries:
            self._why_not = "no retry is left"
        return how if self._why_not is None else None

    def _retries(self, how: How) -> int:
        """Return the retries so far. Fetching more of the same answer begins to count anew with each event."""
        return self._sent - (self._sent_before if how == "resumed" else 1)

    def _again(self, how: How) -> Call:
        """Return what to send."""
        call = self._call.replaced(attempt_kind="retry" if how == "repeated" else "resume")
        if how == "resumed":
            return call.replaced(fetch=(self._head["id"], {"stream": True, "starting_after": self._sequence}))
        return continued(call, "".join(self._texts), len(self._texts)) if how == "continued" else call

    def _error(self, error: Exception, stalled_s: float | None) -> Exception:
        """Return the error for the application: one with what has been received, or the provider's own."""
        if self._why_not == _OWN_ERROR:
            return error
        received = ReceivedAnswer(
            text="".join(self._texts),
            response_id=self._head.get("id"),
            model=self._head.get("model"),
            sequence_number=self._sequence if self._sequence >= 0 else None,
        )
        rest = f"It did not go on: {self._why_not}. What was received is in this error's `received`."
        if stalled_s is None:
            made = BrokenStreamError(
                f"The stream broke off after {len(received.text):,} characters of text ({_named(error)}). {rest}",
                request=self._request,
                received=received,
            )
        else:
            usual = "not known yet" if self._usual_s is None else f"{self._usual_s:.3g} s"
            made = StalledStreamError(
                f"The stream stalled after {len(received.text):,} characters of text: nothing came for "
                f"{stalled_s:.3g} s, and the longest gap is usually {usual}. {rest}",
                request=self._request,
                received=received,
                silent_s=stalled_s,
                usual_gap_s=self._usual_s,
            )
        made.__cause__ = error
        return made

    # What follows a seam

    def _joined(self, how: How) -> Callable[[Any], Any]:
        """Begin the next part. Returns what adapts its events to those before."""
        if how == "continued":
            generated = len(self._texts) - self._pieces_before
            self._parts[-1] = replace(self._parts[-1], output_tokens=generated, estimated=True)
        elif how == "repeated":
            self._parts[-1] = replace(self._parts[-1], output_tokens=0, estimated=True)
        self._pieces_before = len(self._texts)
        self._parts.append(StreamPart(how=how, at_character=sum(map(len, self._texts))))
        if not self._is_response:
            return self._adapter_of_chunks(len(self._parts))
        if how == "resumed":
            return _adapter_of_events(self._sequence, deque(), renumbers=False)
        adapt = _adapter_of_events(self._sequence, deque(self._opening), renumbers=True)
        self._sequence, self._opening, self._head = -1, [], {}
        return adapt

    def _adapter_of_chunks(self, number: int) -> Callable[[Any], Any]:
        head = self._head

        def adapt(chunk: Any) -> Any:
            choices, usage = getattr(chunk, "choices", None), getattr(chunk, "usage", None)
            for name, value in head.items():
                if value is not None:
                    setattr(chunk, name, value)
            if usage is not None and number == len(self._parts):  # once, where several parts have been continued
                self._add_lost_tokens(usage)
            is_empty = usage is None and choices and not _finishes(choices) and choices_kind(choices) is None
            return None if is_empty and head else chunk  # the application has seen how the answer begins

        return adapt

    def _add_lost_tokens(self, usage: Any) -> None:
        """Add the tokens of the parts that were continued to the provider's count of the last one."""
        given, generated = field(usage, "prompt_tokens"), field(usage, "completion_tokens")
        if not isinstance(given, int) or not isinstance(generated, int):
            return
        self._parts[-1] = replace(self._parts[-1], input_tokens=given, output_tokens=generated)
        if self._parts[-1].how != "continued":
            return
        # The prompt of each part has the text of all parts before it.
        before = max(0, given - self._pieces_before)
        for index, part in enumerate(self._parts[:-1]):
            self._parts[index] = replace(part, input_tokens=before)
            before += part.output_tokens or 0
        usage.prompt_tokens = sum(part.input_tokens or 0 for part in self._parts)
        usage.completion_tokens = sum(part.output_tokens or 0 for part in self._parts)
        usage.total_tokens = usage.prompt_tokens + usage.completion_tokens
        usage.estimated = True

    # When it has ended

    def close(self, outcome: CallOutcome) -> UnbrokenSection:
        """Learn from the gaps, and say where the stream broke and how it went on."""
        if outcome.ending == "completed" and len(self._texts) > _FEW:
            note_gap(self._key, self._longest_ns / 1e9)
        usage, parts = outcome.usage, self._parts
        if not any(part.how == "continued" for part in parts):
            parts = [replace(part, input_tokens=usage.input_tokens) if part.estimated else part for part in parts]
            parts[-1] = replace(parts[-1], input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        self._send = self._request = self._patience = self._phases = None
        self._call = self._call.replaced(body={}, encoded=None, data={}, caller=None)
        return UnbrokenSection(
            parts=tuple(parts),
            why_not=self._why_not,
            usual_gap_s=self._usual_s,
            longest_gap_s=self._longest_ns / 1e9 if self._longest_ns else None,
        )


def _finishes(choices: Any) -> bool:
    return any(field(choice, "finish_reason") for choice in choices)


def _named(error: BaseException) -> str:
    status = getattr(error, "status_code", None)
    cause = error.__cause__
    return f"status {status}" if status is not None else type(cause if cause is not None else error).__name__


def _adapter_of_events(last: int, seen: deque[Any], *, renumbers: bool) -> Callable[[Any], Any]:
    """Return what drops the opening events that have been `seen`, and those with a number up to `last`.

    `renumbers`: the events are another response's, and go on from `last` in their numbers.
    """
    offset = None if renumbers else 0

    def adapt(event: Any) -> Any:
        nonlocal last, offset
        if seen and field(event, "type") == seen[0]:
            seen.popleft()
            return None
        number = field(event, "sequence_number")
        if not isinstance(number, int):
            return event
        offset = last + 1 - number if offset is None else offset
        if number + offset <= last:
            return None
        last = event.sequence_number = number + offset
        return event

    return adapt

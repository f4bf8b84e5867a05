"""One call's body on its way: the form in which it is sent, and what came of that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.engine.effects import Close, Compute, Flow
from fastlane.engine.session import CallOutcome, SendAttempt, Session
from fastlane.knowledge.table import Table

from .bodies import Writing, is_signed, json_of, with_body, write
from .section import RequestEncodingSection

if TYPE_CHECKING:
    from fastlane.compat.responses import RequestAttempt
    from fastlane.engine.call import Call
    from fastlane.providers import ProviderFacts
    from fastlane.records.attempts import Form

    from .play import RequestEncoding

# What a server answers that does not take a body in this form: it has read nothing of it, and billed nothing.
_REFUSALS = frozenset({400, 413, 415, 422})
# What a firewall answers to what it cannot look into. A provider answers so too, for other reasons and for a fee, so
# that nothing is sent again.
_MAY_BE_REFUSALS = frozenset({403, 405, 406, 411, 417})
# Errors before anything was sent: they say nothing of the body.
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError"})
# Bodies from this size on are compressed in a thread: the event loop would be held up for more than a millisecond.
_LARGE_BYTES = 262_144

_OF_THE_BODY = frozenset({"content-type", "content-encoding"})
# MessagePack makes gzipped text less than two per cent smaller, and takes a library and the provider's more rarely used
# parser: it comes first only for token ids, which JSON writes badly.
_FOR_TEXT: tuple[Form, ...] = ("json+gzip", "msgpack+gzip", "msgpack")
_FOR_NUMBERS: tuple[Form, ...] = ("msgpack+gzip", "json+gzip", "msgpack")

log = logging.getLogger("fastlane")


class FormKey(NamedTuple):
    """What a failure is about."""

    origin: str
    path: str
    """Of the request's address: one origin may lead to several servers."""
    form: Form


_failures: Table[FormKey, str] = Table("failures of encoded bodies", max_entries=2_000, expires_s=600)
"""Why a server is sent JSON for ten minutes, for all clients."""


class _Cost(NamedTuple):
    """What an encoded body has cost, and what a round trip less saves."""

    cpu_s_per_byte: float
    round_trip_time_s: float


_costs: Table[FormKey, _Cost] = Table("costs of encoded bodies", max_entries=2_000, expires_s=600)


class RequestEncodingSession(Session):
    """Sends the body of one call in the best form that its provider takes."""

    def __init__(self, play: RequestEncoding) -> None:
        self._play = play
        self._call: Call | None = None
        """The call as it is sent; None if the caller has decided on the form of its body."""
        self._forms: tuple[Form, ...] = ()
        """Those that may be used, the best first; without "json", which is always allowed."""
        self._writing = Writing()
        self._key: FormKey | None = None
        self._form: Form = "json"
        self._reason = "Nothing was sent."
        self._plain_bytes = self._sent_bytes = 0
        self._cpu_s = 0.0
        self._is_tried = False
        self._refused: str | None = None

    def plan(self, call: Call) -> Call:
        """Choose the forms in which the body may be sent."""
        if any(name.lower() in _OF_THE_BODY for name in call.headers):
            return call
        play = self._play
        given: Any = play.facts
        known: list[ProviderFacts] = [facts for facts in (given, call.facts) if facts is not None]
        taken = next((forms for facts in known if (forms := facts.forms(call.endpoint)) is not None), None)
        types = [fact.value for each in known if (fact := each.media_types.get("msgpack")) is not None and fact.value]
        best = _FOR_NUMBERS if _holds_numbers(call.body) else _FOR_TEXT
        self._forms = tuple(
            form for form in best if (taken is None or form in taken) and form in (play.forms or taken or ())
        )
        self._reason = (
            "The provider takes no form of body that may be used but JSON."
            if taken is not None
            else "It is not known whether the provider takes other bodies than JSON: forms=(...) says so."
        )
        self._writing = Writing(play.gzip_level, types[0] if types else Writing().msgpack_type)
        self._call = call
        # A call that is planned anew, such as one that is asked again, is as good as the first where nothing failed.
        self._is_tried = self._refused is not None
        return call

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Send an attempt in the best form; the second one, after an error, as JSON."""

        def send_in_form(attempt: RequestAttempt) -> Flow:
            if self._call is None:
                return (yield from send(attempt))
            if self._is_tried:
                if self._form != "json":  # after an error that may have been the form's fault
                    self._go_plain(f"The encoded body met {self._refused}: the attempts after it were JSON.")
                return (yield from send(attempt))
            self._is_tried = True
            encoded = None
            try:
                encoded = yield from self._encoded(attempt, self._call)
            except Exception as error:  # noqa: BLE001 - a body that cannot be written otherwise goes out as it is
                self._go_plain(f"The body could not be written in another form ({type(error).__name__}).")
                log.warning("RequestEncoding sends a body as JSON, because of %s", type(error).__name__)
            if encoded is None:
                return (yield from send(attempt))
            return (yield from self._send_encoded(send, attempt, encoded))

        return send_in_form

    def close(self, outcome: CallOutcome) -> RequestEncodingSection | None:
        """Say in which form the body was sent."""
        if self._call is None:
            return None
        round_trip_ns = outcome.attempts[-1].phases.round_trip_time_ns if outcome.attempts else None
        if self._key is not None and round_trip_ns is not None:
            _costs.put(self._key, _Cost(self._cpu_s / self._plain_bytes, round_trip_ns / 1e9))
        return RequestEncodingSection(
            form=self._form,
            reason=self._reason,
            plain_bytes=self._plain_bytes,
            sent_bytes=self._sent_bytes,
            cpu_s=self._cpu_s,
            refused=self._refused,
        )

    def _send_encoded(self, send: SendAttempt, attempt: RequestAttempt, encoded: Any) -> Flow:
        """Send the encoded request; if it is refused, the plain one at once."""
        key = self._key
        assert key is not None
        try:
            reply = yield from send(replace(attempt, request=encoded, form=self._form))
        except Exception as error:
            self._refused = type(error.__cause__ or error).__name__
            if self._refused not in _NOT_SENT:
                _failures.put(key, f"Encoded bodies met {self._refused}.")
            raise
        status = reply.response.status_code
        if status in _REFUSALS:
            self._refused = str(status)
            self._go_plain(f"The encoded body met {status}: the attempts after it were JSON.")
            with suppress(Exception):  # the body is to be sent again in any case
                yield Close(reply.response)
            reply.end("failed")
            reply = yield from send(replace(attempt, kind="plain"))
            if reply.response.status_code < 300:
                _failures.put(key, f"The server answered {status} to an encoded body, and took its JSON.")
        elif status >= 500 or status in _MAY_BE_REFUSALS:
            self._refused = str(status)
            _failures.put(key, f"Encoded bodies met {status}.")
        return reply

    def _go_plain(self, reason: str) -> None:
        self._form, self._sent_bytes, self._reason = "json", self._plain_bytes, reason

    def _encoded(self, attempt: RequestAttempt, call: Call) -> Flow:
        """Return the request with its body in another form, or None."""
        request, play = attempt.request, self._play
        plain = json_of(request)
        if plain is None:
            self._reason = "The body was no plain JSON: the caller had given it a form of its own."
            return None
        self._plain_bytes = self._sent_bytes = size = len(plain)
        if size < play.min_bytes:
            self._reason = f"A body of {size:,} bytes is smaller than min_bytes ({play.min_bytes:,})."
            return None
        if is_signed(request):
            self._reason = "A header of the request was made from the bytes of its JSON body, such as a signature."
            return None
        key = self._choose_form(call.origin, request.url.path)
        if key is None:
            return None
        known = _costs.get(key)
        if known is not None and size * known.cpu_s_per_byte > known.round_trip_time_s:
            self._reason = (
                f"It takes {size * known.cpu_s_per_byte * 1e3:.1f} ms of CPU time, more than a round trip "
                f"({known.round_trip_time_s * 1e3:.1f} ms)."
            )
            return None
        self._key = key
        writing = partial(write, plain, key.form, self._writing)
        body, cpu_s = (yield Compute(writing)) if size >= _LARGE_BYTES else writing()
        self._cpu_s += cpu_s
        self._reason = f"{len(body):,} bytes instead of {size:,}."
        if len(body) >= size:
            return None
        self._form, self._sent_bytes = key.form, len(body)
        return with_body(request, body, key.form, self._writing)

    def _choose_form(self, origin: str, endpoint: str) -> FormKey | None:
        """Return the best form that the provider takes; None after a failure with one."""
        keys = [FormKey(origin, endpoint, form) for form in self._forms]
        failed = next(filter(None, map(_failures.get, keys)), None)
        if failed is not None:
            self._reason = failed
            return None
        return keys[0] if keys else None


def _holds_numbers(body: Mapping[str, Any]) -> bool:
    """Return whether a body holds a prompt, or several, as token ids."""
    first = body.get("prompt")
    while isinstance(first, list | tuple) and first:
        first = first[0]
    return isinstance(first, int) and not isinstance(first, bool)

"""One call's body on its way: the form in which it is sent, and what came of that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane._clock import now_ns
from fastlane.compat.clients import transport_for
from fastlane.engine.effects import Close, Compute, Flow
from fastlane.engine.session import CallOutcome, SendAttempt, Session
from fastlane.transport.protocols.upload import Path, rounds, upload_s

from .bodies import Writing, expected_cpu_s, is_signed, json_of, with_body, write
from .learned import (
    FormKey,
    FormVerdict,
    begin_trial,
    decide_on,
    end_trial,
    expected_share,
    learn_share,
    note_answer,
    note_failure,
    verdict_on,
)
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
# that nothing is sent again: two in a row count like two errors.
_MAY_BE_REFUSALS = frozenset({403, 405, 406, 411, 417})
# These say something of the caller, and nothing of the body.
_OF_THE_CALLER = frozenset({401, 402, 407, 408, 425, 429})
# Errors before anything was sent: they say nothing of the body.
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError"})
# A call that is given up sooner than this was not waiting for a server that hangs.
_WAITED_NS = 10**9
# A body that is worth encoding is a longer prompt than this. A server that reports fewer tokens has lost the prompt.
_FEWEST_TOKENS = 50
_LONG_BYTES = 10_000
# Bodies from this size on are compressed in a thread: the event loop would be held up for more than a millisecond.
_LARGE_BYTES = 262_144

_OF_THE_BODY = frozenset({"content-type", "content-encoding"})
# MessagePack makes gzipped text less than two per cent smaller, and takes a library and the provider's more rarely used
# parser: it comes first only for token ids, which JSON writes badly.
_FOR_TEXT: tuple[Form, ...] = ("json+gzip", "msgpack+gzip", "msgpack")
_FOR_NUMBERS: tuple[Form, ...] = ("msgpack+gzip", "json+gzip", "msgpack")

log = logging.getLogger("fastlane")


class FormDecision(NamedTuple):
    """Whether to send the encoded body, and why."""

    encode: bool
    reason: str
    """One sentence, without any text of the prompt."""
    plain_rounds: int
    """Predicted for the plain body."""
    encoded_rounds: int
    """Predicted for the encoded one."""
    saving_s: float
    """Predicted: how much sooner the encoded body would arrive, less the CPU time of encoding."""


def decide(*, plain_bytes: int, encoded_bytes: int, cpu_s: float, path: Path, min_bytes: int) -> FormDecision:
    """Decide between a body as it is and its encoded form.

    pays = (rounds(plain) - rounds(encoded)) x RTT + (plain - encoded) / uplink > CPU

    where both terms overlap, because a round waits while the link is busy: `upload_s()` takes the longer of both, and
    is exactly the first term where the link does not limit. Never encoded: a body below `min_bytes`, one
    that does not get smaller, and one whose CPU time outweighs what it saves. Source of the formula: `upload_s()`.
    """
    plain_rounds, encoded_rounds = rounds(plain_bytes, path), rounds(encoded_bytes, path)
    saving_s = upload_s(plain_bytes, path) - upload_s(encoded_bytes, path) - cpu_s
    sizes = f"{encoded_bytes:,} bytes instead of {plain_bytes:,}"
    encode = plain_bytes >= min_bytes and encoded_bytes < plain_bytes and saving_s > 0
    if plain_bytes < min_bytes:
        reason = f"A body of {plain_bytes:,} bytes is smaller than min_bytes ({min_bytes:,})."
    elif encoded_bytes >= plain_bytes:
        reason = f"Encoded, the body would be no smaller ({encoded_bytes:,} bytes, not {plain_bytes:,})."
    elif not encode and plain_rounds == encoded_rounds and path.uplink_bytes_per_s is None:
        reason = f"The body takes {_round_trips(plain_rounds)} either way."
    elif not encode:
        reason = f"Encoding takes {_ms(cpu_s)} of CPU time, and saves {_ms(saving_s + cpu_s)} on the way."
    elif encoded_rounds < plain_rounds:
        saved = f"{_round_trips(encoded_rounds)} of {_ms(path.round_trip_time_s)} instead of {plain_rounds}"
        reason = f"{sizes} take {saved}."
    else:
        reason = f"{sizes} arrive {_ms(saving_s)} sooner on this uplink."
    return FormDecision(encode, reason, plain_rounds, encoded_rounds, saving_s)


def _round_trips(count: int) -> str:
    return "1 round trip" if count == 1 else f"{count} round trips"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


class RequestEncodingSession(Session):
    """Sends the body of one call in the form that pays."""

    def __init__(self, play: RequestEncoding) -> None:
        self._play = play
        self._call: Call | None = None
        """The call as it is sent; None where the caller has decided on the form of its body."""
        self._forms: tuple[Form, ...] = ()
        """Those that may be used, the best first; without "json", which is always allowed."""
        self._is_known = False
        self._writing = Writing()
        self._key: FormKey | None = None
        self._form: Form = "json"
        self._reason = "Nothing was sent."
        self._plain_bytes = self._sent_bytes = 0
        self._cpu_s = 0.0
        self._path: Path | None = None
        self._decision: FormDecision | None = None
        self._is_tried = False
        self._is_trial = False
        """Whether this call tries a form that the provider is not known to take."""
        self._refused: str | None = None
        self._failed: str | None = None

    def plan(self, call: Call) -> Call:
        """Choose the forms in which the body may be sent; whether one of them pays is known when it is."""
        if any(name.lower() in _OF_THE_BODY for name in call.headers):
            return call
        play = self._play
        given: Any = play.facts
        known: list[ProviderFacts] = [facts for facts in (given, call.facts) if facts is not None]
        taken = next((forms for facts in known if (forms := facts.forms(call.endpoint)) is not None), None)
        types = [fact.value for each in known if (fact := each.media_types.get("msgpack")) is not None and fact.value]
        best = _FOR_NUMBERS if _holds_numbers(call.body) else _FOR_TEXT
        self._forms = tuple(
            form for form in best if (taken is None or form in taken) and (play.forms is None or form in play.forms)
        )
        self._is_known = taken is not None
        self._writing = Writing(play.gzip_level, types[0] if types else Writing().msgpack_type)
        self._call = call
        # A call that is planned anew, such as one that is asked again, is as good as the first where nothing failed.
        self._is_tried = self._refused is not None
        return call

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Send an attempt in the form that pays; the second one, after an error, as JSON."""

        def send_in_form(attempt: RequestAttempt) -> Flow:
            if self._call is None:
                return (yield from send(attempt))
            if self._is_tried:
                return (yield from self._send_again(send, attempt))
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
        """Look whether the server has counted the tokens of the prompt."""
        if self._call is None:
            return None
        usage, is_encoded = outcome.usage, self._form != "json"
        tokens = None if usage.estimated else usage.input_tokens
        is_long = is_encoded and self._plain_bytes >= _LONG_BYTES
        if is_long and self._key is not None and tokens is not None and tokens < _FEWEST_TOKENS:
            reason = f"The server reported {tokens} tokens for an encoded body of {self._plain_bytes:,} bytes as JSON."
            for form in self._forms:  # a server that loses the one may lose the others
                decide_on(self._key._replace(form=form), FormVerdict("refused", reason))
            log.warning("%s It is sent JSON from now on: its answer may not be one to the call.", reason)
        elif self._is_trial and self._key is not None and is_encoded and outcome.ending in ("completed", "stopped"):
            decide_on(self._key, FormVerdict("accepted", "The server has answered an encoded body."))
        if self._is_trial and self._key is not None:
            end_trial(self._key)
        decision, path = self._decision, self._path
        rounds = None if decision is None else decision.encoded_rounds if is_encoded else decision.plain_rounds
        return RequestEncodingSection(
            form=self._form,
            reason=self._reason,
            plain_bytes=self._plain_bytes,
            sent_bytes=self._sent_bytes,
            cpu_s=self._cpu_s,
            plain_rounds=None if decision is None else decision.plain_rounds,
            sent_rounds=rounds,
            round_trip_time_s=None if path is None else path.round_trip_time_s,
            congestion_window=None if path is None else path.congestion_window,
            predicted_saving_s=decision.saving_s if decision is not None and is_encoded else 0.0,
            probed=self._is_trial,
            refused=self._refused,
        )

    def _send_encoded(self, send: SendAttempt, attempt: RequestAttempt, encoded: Any) -> Flow:
        """Send the encoded request; if it is refused, the plain one at once."""
        key, began_ns = self._key, now_ns()
        assert key is not None
        try:
            reply = yield from send(replace(attempt, request=encoded, form=self._form))
        except Exception as error:
            self._refused = type(error.__cause__ or error).__name__
            if self._refused not in _NOT_SENT:
                self._failed = self._refused
                note_failure(key, f"Encoded bodies met {self._failed}.")
            raise
        except BaseException:
            # Most often the caller's own reasons. But where all of them end so, a time limit of the caller's ends them.
            if now_ns() - began_ns >= _WAITED_NS:
                note_failure(key, "Encoded bodies got no answer until they were given up.")
            raise
        status = reply.response.status_code
        if status in _REFUSALS or (self._is_trial and status >= 400 and status not in _OF_THE_CALLER):
            self._refused = str(status)
            self._go_plain(f"The encoded body met {status}: the attempts after it were JSON.")
            with suppress(Exception):  # the body is to be sent again in any case
                yield Close(reply.response)
            reply.end("failed")
            reply = yield from send(replace(attempt, kind="plain"))
            if reply.response.status_code < 300:
                reason = f"The server answered {status} to an encoded body, and took its JSON."
                decide_on(key, FormVerdict("refused", reason))
        elif status >= 500 or status in _MAY_BE_REFUSALS:
            self._refused = self._failed = str(status)
            note_failure(key, f"Encoded bodies met {status}.")
        elif status < 300:
            note_answer(key)
        return reply

    def _send_again(self, send: SendAttempt, attempt: RequestAttempt) -> Flow:
        """Send a further attempt as JSON, after an error that may have been the form's fault."""
        if self._form != "json":
            self._go_plain(f"The encoded body met {self._refused}: the attempts after it were JSON.")
        reply = yield from send(attempt)
        if self._failed is not None and self._key is not None and reply.response.status_code < 300:
            note_failure(self._key, f"An encoded body met {self._failed}, and the same as JSON was answered.")
            self._failed = None
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
        self._key = key
        self._path = path_of(attempt.http, request)
        if play.uplink_bits_per_s is not None:
            self._path = replace(self._path, uplink_bytes_per_s=play.uplink_bits_per_s / 8)
        if not self._decide(int(size * expected_share(key)), expected_cpu_s(key.form, size, play.gzip_level)):
            return None
        writing = partial(write, plain, key.form, self._writing)
        body, cpu_s = (yield Compute(writing)) if size >= _LARGE_BYTES else writing()
        self._cpu_s += cpu_s
        learn_share(key, len(body) / size)
        if not self._decide(len(body), cpu_s):
            return None
        if not self._is_known and verdict_on(key) is None:
            self._is_trial = begin_trial(key)
            if not self._is_trial:
                self._reason = "Another call is finding out whether the provider takes such bodies."
                return None
        self._form, self._sent_bytes = key.form, len(body)
        return with_body(request, body, key.form, self._writing)

    def _decide(self, encoded_bytes: int, cpu_s: float) -> bool:
        assert self._path is not None
        self._decision = decide(
            plain_bytes=self._plain_bytes,
            encoded_bytes=encoded_bytes,
            cpu_s=cpu_s,
            path=self._path,
            min_bytes=self._play.min_bytes,
        )
        self._reason = self._decision.reason
        return self._decision.encode

    def _choose_form(self, origin: str, endpoint: str) -> FormKey | None:
        """Return the best form that the provider takes, or may take."""
        if self._is_known:
            self._reason = "The provider takes no form of body that may be used but JSON."
        else:
            self._reason = "It is not known whether the provider takes other bodies than JSON: probe=True finds out."
        for form in self._forms:
            key = FormKey(origin, endpoint, form)
            verdict = verdict_on(key)
            if verdict is not None and verdict.outcome != "accepted":
                self._reason = verdict.reason
                if verdict.outcome == "broken":
                    return None  # it may well break on the others too
            # A server that does not take the best is not bothered with the others.
            elif verdict is not None or self._is_known or (self._play.probe and form == self._forms[0]):
                return key
        return None


def path_of(http: Any, request: Any) -> Path:
    """Return what is known of the way that a request will take; assumptions where nothing is."""
    look = getattr(transport_for(http, request.url), "outlook", None)
    outlook = look(request) if callable(look) else None
    known: dict[str, Any] = {"tls": request.url.scheme == "https"}
    if outlook is not None:
        known |= {
            "round_trip_time_s": outlook.round_trip_time_ns / 1e9 if outlook.round_trip_time_ns is not None else None,
            "congestion_window": outlook.congestion_window,
            "in_flight_segments": outlook.in_flight_segments,
            "segment_bytes": outlook.segment_bytes,
            "receive_window_bytes": outlook.receive_window_bytes,
            "stream_window_bytes": outlook.peer_stream_window,
            "connection_window_bytes": outlook.peer_connection_window,
            "http2": outlook.http_version != "HTTP/1.1" if outlook.http_version is not None else None,
        }
    return Path(**{name: value for name, value in known.items() if value is not None})


def _holds_numbers(body: Mapping[str, Any]) -> bool:
    """Return whether a body holds a prompt, or several, as token ids."""
    first = body.get("prompt")
    while isinstance(first, list | tuple) and first:
        first = first[0]
    return isinstance(first, int) and not isinstance(first, bool)

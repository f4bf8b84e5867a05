"""One call's body on its way: in which form it is sent, and what came of that; the I/O is somebody else's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane._clock import now_ns
from fastlane.records.encoding import EncodingRecord
from fastlane.transport.protocols.upload import Path

from ._bodies import Written, expected_cpu_s, write
from ._probe import TIMEOUT_S, Answer, Judgement, probe
from ._requests import is_signed, json_of, place_of, with_body
from ._shares import shares
from ._verdicts import Key, verdicts
from .decision import Decision, decide
from .section import EncodingSection

if TYPE_CHECKING:
    from fastlane.engine.attempt_stamps import AttemptStamps
    from fastlane.records.attempts import Form

    from .plan import Encode

# What a server answers that does not take a body in this form: it has read nothing of it, and billed nothing.
_REFUSALS = frozenset({400, 413, 415, 422})

# What something on the way, such as a firewall, answers to what it cannot look into. A provider answers so too, for
# other reasons and for a fee, so that nothing is sent again: two in a row count like two errors.
_MAY_BE_REFUSALS = frozenset({403, 405, 406, 411, 417})

# Errors before anything was sent: they say nothing of the body.
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError"})

# Whoever gives up a call sooner than this was not waiting for a server that hangs.
_WAITED_NS = 10**9

# A probe is a few round trips. The call waits for it, and not for longer.
_MOST_ASKING_NS = round(3 * TIMEOUT_S * 1e9)

# A body that is worth encoding is a longer prompt than this, whatever its language, and images count for more as well.
# A server that reports fewer tokens has lost what the body said.
_FEWEST_TOKENS = 50
_LONG_BYTES = 10_000

log = logging.getLogger("fastlane")


class Ask(NamedTuple):
    """Send a request of a probe, for its `Answer`."""

    request: Any


class Write(NamedTuple):
    """Write the body in another form, for what was `Written`: CPU time, about 6 ns a byte."""

    plain: bytes
    form: Form
    encode: Encode

    def run(self) -> Written:
        """Write it."""
        return write(self.plain, self.form, self.encode)


class Send(NamedTuple):
    """Send an attempt of the call, for its response."""

    request: Any
    form: Form
    kind: str | None
    """"plain" where it takes the place of an encoded one; None for one of those that openai's loop counts."""


class Drop(NamedTuple):
    """Close a response that nobody will read."""

    response: Any


Step = Ask | Write | Send | Drop


class Sending:
    """The body of one call. `steps()` says what is to be done for each attempt; whoever runs it does the I/O."""

    def __init__(
        self,
        encode: Encode,
        *,
        origin: str,
        endpoint: str,
        model: str | None,
        went_wrong: Callable[[str, str, Exception], None],
    ) -> None:
        self._encode = encode
        self._origin = origin
        self._endpoint = endpoint
        self._model = model
        self._went_wrong = went_wrong
        self._tried = False
        self._key: Key | None = None
        self._met: str | None = None
        self._failed: str | None = None
        self._form: Form = "json"
        self._reason = "Nothing was sent."
        self._plain_bytes = 0
        self._sent_bytes = 0
        self._cpu_s = 0.0
        self._path: Path | None = None
        self._decision: Decision | None = None
        self._probed = False
        self._refused: str | None = None

    def steps(self, request: Any, path: Callable[[Any], Path]) -> Generator[Step, Any, Any]:
        """What to do for one attempt, given its request as openai built it; the end is the attempt's response.

        `path` says what is known of the way that a request will take. Raises what sending raises.
        """
        if self._tried:
            return (yield from self._again(request))
        self._tried = True
        twin = None
        try:
            twin = yield from self._twin(request, path)
        except Exception as error:  # noqa: BLE001 - a body that cannot be written otherwise goes out as it is
            self._form, self._sent_bytes = "json", self._plain_bytes
            self._reason = f"The body could not be written in another form ({type(error).__name__})."
            self._went_wrong("Encoding", "encode", error)
        if twin is None:
            return (yield Send(request, "json", None))
        return (yield from self._encoded(request, twin))

    def _encoded(self, request: Any, twin: Any) -> Generator[Step, Any, Any]:
        """Send the encoded request; if it is refused, the plain one at once."""
        key, form = self._key, self._form
        assert key is not None
        response, began_ns = None, now_ns()
        try:
            response = yield Send(twin, form, None)
            status = response.status_code
        except Exception as error:
            # An HTTP client may have been told to raise what a server answers.
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if status not in _REFUSALS:
                self._met = type(error).__name__
                self._fail(key, self._met)
                raise
        except BaseException:
            # Most often somebody's own reasons. But where all of them end so, the application's own time-out is what
            # ends them.
            if now_ns() - began_ns >= _WAITED_NS:
                reason = "Encoded bodies got no answer until they were given up."
                verdicts.failed(key, reason, weight=0.5, file=self._encode.remember)
            raise
        self._met = str(status)
        if status in _REFUSALS:
            self._fall_back()
            if response is not None:
                yield Drop(response)
            response = yield Send(request, "json", "plain")
            if response.status_code < 300:
                reason = f"The server answered {status} to an encoded body, and took its JSON."
                verdicts.put(key, "refused", reason, self._encode.remember)
        elif status >= 500 or status in _MAY_BE_REFUSALS:
            self._fail(key, self._met)
        elif status < 300:
            verdicts.answered(key)
        return response

    def _again(self, request: Any) -> Generator[Step, Any, Any]:
        """A further attempt, after an error that may have been the form's fault."""
        if self._form != "json":
            self._fall_back()
        response = yield Send(request, "json", None)
        if self._failed is not None and self._key is not None and response.status_code < 300:
            reason = f"An encoded body met {self._failed}, and the same as JSON was answered."
            verdicts.failed(self._key, reason, weight=1, file=self._encode.remember)
            self._failed = None
        return response

    def _fail(self, key: Key, what: str) -> None:
        self._refused = what
        if what in _NOT_SENT:
            return
        self._failed = what
        verdicts.failed(key, f"Encoded bodies met {what}.", weight=1, file=self._encode.remember)

    def _fall_back(self) -> None:
        """Whatever is sent from here on is JSON."""
        self._refused = self._met
        self._form, self._sent_bytes = "json", self._plain_bytes
        self._reason = f"The encoded body met {self._met}: whatever was sent after it was JSON."

    def _twin(self, request: Any, path: Callable[[Any], Path]) -> Generator[Step, Any, Any]:
        """The request with its body in another form; None where it is to go as it is."""
        plain = json_of(request)
        if plain is None:
            self._reason = "The body was no plain JSON: the application had given it a form of its own."
            return None
        self._plain_bytes = self._sent_bytes = size = len(plain)
        encode = self._encode
        if size < encode.min_bytes:
            self._reason = f"A body of {size:,} bytes is smaller than min_bytes ({encode.min_bytes:,})."
            return None
        if is_signed(request):
            self._reason = "A header of the request was made from the bytes of its JSON body, such as a signature."
            return None
        candidate = self._candidate(place_of(request, self._endpoint))
        if candidate is None:
            return None
        key, is_known = candidate
        form, self._key = key.form, key
        self._path = path(request)
        if encode.uplink_bytes_per_s is not None:
            self._path = replace(self._path, uplink_bytes_per_s=encode.uplink_bytes_per_s)
        decision = self._decide(int(size * shares.expected(key)), expected_cpu_s(form, size, encode.gzip_level))
        if not decision.encode:
            shares.passed(key)
            return None
        if not is_known and not (yield from self._find_out(request, key, form)):
            return None
        written: Written = yield Write(plain, form, encode)
        self._cpu_s += written.cpu_s
        shares.learn(key, len(written.body) / size)
        if not self._decide(len(written.body), written.cpu_s).encode:
            return None
        self._form, self._sent_bytes = form, len(written.body)
        return with_body(request, written.body, form, encode)

    def _decide(self, encoded_bytes: int, cpu_s: float) -> Decision:
        encode, path = self._encode, self._path
        assert path is not None
        decision = self._decision = decide(
            plain_bytes=self._plain_bytes,
            encoded_bytes=encoded_bytes,
            cpu_s=cpu_s,
            path=path,
            min_bytes=encode.min_bytes,
        )
        self._reason = decision.reason
        return decision

    def _candidate(self, place: str) -> tuple[Key, bool] | None:
        """The best form that the provider takes, or may take; with whether that is known."""
        encode = self._encode
        if encode.known:
            self._reason = "The provider takes no form of body that may be used but JSON."
        else:
            self._reason = (
                "Nobody knows whether the provider takes other bodies than JSON; Encoding(probe=True) finds out."
            )
        for form in encode.forms:
            key = Key(self._origin, place, form)
            verdict = verdicts.get(key, encode.remember)
            if verdict is not None and not verdict.accepts:
                self._reason = verdict.reason
                if verdict.outcome == "broken":
                    return None  # it may well break on the others too
            elif verdict is not None or encode.known:
                return key, True
            elif encode.probe and form == encode.forms[0]:
                return key, False  # a server that does not take the best is not bothered with the others
        return None

    def _find_out(self, request: Any, key: Key, form: Form) -> Generator[Step, Any, bool]:
        """Whether the provider takes this form: ask it, unless another call does so at this moment."""
        if not verdicts.begin_asking(key):
            self._reason = "Another call is finding out whether the provider takes such bodies."
            return False
        try:
            verdict = verdicts.get(key)  # another call may have found out since this one looked
            if verdict is None:
                outcome, reason = yield from self._ask(request, form)
                self._probed = True
                verdict = verdicts.put(key, outcome, reason, self._encode.remember)
        finally:
            verdicts.end_asking(key)
        self._reason = verdict.reason
        return verdict.accepts

    def _ask(self, request: Any, form: Form) -> Generator[Step, Any, Judgement]:
        """Send a probe's requests."""
        began_ns = now_ns()
        asking = probe(request, self._endpoint, self._model, form, self._encode)
        answer: Answer | None = None
        while now_ns() - began_ns <= _MOST_ASKING_NS:
            try:
                asked = next(asking) if answer is None else asking.send(answer)
            except StopIteration as end:
                judgement: Judgement = end.value
                return judgement
            answer = yield Ask(asked)
        return Judgement("broken", "The server took too long to say what it takes.")

    def ended(self, input_tokens: int | None) -> None:
        """The call is over: so many tokens of prompt were reported."""
        if self._form == "json" or self._key is None or input_tokens is None or input_tokens >= _FEWEST_TOKENS:
            return
        if self._plain_bytes < _LONG_BYTES:
            return
        reason = (
            f"The server reported {input_tokens} tokens for an encoded body of {self._plain_bytes:,} bytes as JSON."
        )
        for form in self._encode.forms:  # whoever loses the one may lose the others
            verdicts.put(self._key._replace(form=form), "refused", reason, self._encode.remember)
        log.warning("%s It is sent JSON from now on: what it answered may not be an answer to the call.", reason)

    def record(self, last: AttemptStamps | None) -> EncodingRecord:
        """What was done, for the call's record."""
        decision, path = self._decision, self._path
        sent = self._form != "json"
        phases = last.phases if last is not None else None
        sending = phases is not None and phases.send_started_ns is not None
        return EncodingSection(
            form=self._form,
            reason=self._reason,
            plain_bytes=self._plain_bytes,
            sent_bytes=self._sent_bytes,
            cpu_s=self._cpu_s,
            plain_rounds=decision.plain_rounds if decision is not None else None,
            sent_rounds=(decision.encoded_rounds if sent else decision.plain_rounds) if decision is not None else None,
            round_trip_time_s=path.round_trip_time_s if path is not None else None,
            congestion_window=path.congestion_window if path is not None else None,
            predicted_saving_s=decision.saving_s if decision is not None and sent else 0.0,
            probed=self._probed,
            refused=self._refused,
            send_s=_seconds(phases.send_started_ns, phases.send_ended_ns) if phases is not None and sending else None,
            answer_s=_seconds(phases.send_started_ns, phases.first_byte_ns) if phases is not None and sending else None,
        )


def _seconds(started_ns: int | None, ended_ns: int | None) -> float | None:
    return (ended_ns - started_ns) / 1e9 if started_ns is not None and ended_ns is not None else None

"""One call out of its span and those below it: what it asked for, what came of it, and where its time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ._model import PHASES, CallPhase, TraceAttempt, TraceCall
from ._spans import Span

# By name: https://github.com/open-telemetry/semantic-conventions/blob/main/docs/dotnet/dotnet-network-traces.md
_BY_NAME: Final = (
    ("wait_for_place", "queue"),
    ("HTTP wait_for_connection", "queue"),
    ("HTTP connection_setup", "connection"),
    ("DNS lookup", "dns"),
    ("socket connect", "connect"),
    ("TLS client handshake", "tls"),
    ("HTTP send_request", "send"),
    ("HTTP wait_for_response", "wait"),
    ("first_token", "first_token"),
    ("decode", "decode"),
    ("validate", "validate"),
    ("prepare", "prepare"),
)
_ACTIONS: Final = frozenset({"invoke_workflow", "invoke_agent"})
_CALLS: Final = frozenset({"chat", "text_completion", "embeddings", "generate_content"})
_WIRE: Final = ("queue", "dns", "connect", "tls", "send")
_ATTRIBUTES: Final = {
    "prepare": "fastlane.prepare.duration",
    **{name: f"fastlane.wire.{name}.duration" for name in _WIRE},
    "server": "fastlane.server.wait.duration",
    "decode": "fastlane.decode.duration",
    "validate": "fastlane.validate.duration",
}
_QUEUES: Final = ("fastlane.admission.wait.duration", "fastlane.rate_limits.wait.duration")
_NOT_ANSWERED: Final = frozenset({"failed", "lost", "late", "cancelled", "replaced"})


def is_action(span: Span) -> bool:
    """Whether a span is a user's action, or what else calls are made for."""
    return span.text("gen_ai.operation.name") in _ACTIONS


def is_call(span: Span) -> bool:
    """Whether a span is a call to a model, by fastlane's hand or another's."""
    attributes = span.attributes
    return (
        span.text("gen_ai.operation.name") in _CALLS
        or "fastlane.attempt.count" in attributes
        or "fastlane.time_to_first_token" in attributes
        or attributes.get("openinference.span.kind") == "LLM"
        or (attributes.get("llm.request.type") in ("chat", "completion"))
    )


def is_attempt(span: Span) -> bool:
    """Whether a span is an HTTP request that a client made."""
    return span.kind == "client" and ("http.request.method" in span.attributes or "http.method" in span.attributes)


def phase_of(span: Span) -> str | None:
    """The name of the phase that a span is; None for one that is none."""
    # A user's span may have such a name too, but has a scope of its own.
    if not span.scope.startswith("fastlane"):
        return None
    return next((phase for name, phase in _BY_NAME if span.name == name or span.name.startswith(f"{name} ")), None)


def call_of(span: Span, below: Sequence[Span], *, issued_ns: int) -> TraceCall:
    """The call whose span is `span`, with all spans below it."""
    told = _told(span, issued_ns)
    found = [
        CallPhase(name=name, start_ns=each.start_ns, end_ns=each.end_ns, span=each) for each, name in _named(below)
    ]
    attempts = _attempts(below)
    answering = answering_of(attempts)
    if (waited_s := _waited_until_timeout_s(span, answering, told)) is not None:
        told["server"] = waited_s
    if not any(phase.name not in ("prepare", "validate") for phase in found):
        found += _drawn(span, answering, told, issued_ns)
    found.sort(key=lambda phase: (phase.start_ns, -phase.end_ns))
    error = span.error
    return TraceCall(
        span=span,
        issued_ns=issued_ns,
        model=span.text("gen_ai.request.model", "llm.model_name"),
        response_model=span.text("gen_ai.response.model"),
        provider=span.text("gen_ai.provider.name", "gen_ai.system", "llm.provider"),
        error=error,
        time_to_first_token_s=span.number("fastlane.time_to_first_token"),
        input_tokens=span.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        cached_tokens=span.count("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
        output_tokens=span.count(
            "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
        ),
        reasoning_tokens=span.count("gen_ai.usage.reasoning.output_tokens"),
        tokens_per_second=span.number("fastlane.decode.tokens_per_second"),
        route_reason=span.text("fastlane.route.reason"),
        connection_reused=_reused(span, answering),
        attempt_count=span.count("fastlane.attempt.count") or len(attempts) or None,
        cache_miss=span.text("fastlane.cache.mismatch_reason"),
        cache_miss_path=span.text("fastlane.cache.mismatch_path"),
        cache_lost_tokens=span.count("fastlane.cache.lost_tokens"),
        attempts=attempts,
        phases=tuple(found),
        durations_s=_durations(span, found, attempts, answering, told),
    )


def answering_of(attempts: Sequence[TraceAttempt]) -> TraceAttempt | None:
    """The attempt that gave the answer, or the last that failed."""
    good = [each for each in attempts if each.error is None and each.outcome not in _NOT_ANSWERED]
    return next(reversed(good or list(attempts)), None)


def attempt_note(attempt: TraceAttempt) -> str:
    """What tells an attempt from its neighbours, in a few words."""
    words = [attempt.kind] if attempt.kind not in (None, "first") else []
    if attempt.error is None and attempt.outcome in _NOT_ANSWERED:
        words.append(attempt.outcome)
    if attempt.status_code is not None and attempt.status_code >= 400 and str(attempt.status_code) != attempt.error:
        words.append(str(attempt.status_code))
    if attempt.connection_reused is not None:
        words.append("connection reused" if attempt.connection_reused else "new connection")
    return ", ".join(word for word in words if word)


def _named(spans: Iterable[Span]) -> list[tuple[Span, str]]:
    return [(span, name) for span in spans if (name := phase_of(span)) is not None]


def _attempts(below: Sequence[Span]) -> tuple[TraceAttempt, ...]:
    parents = {span.key: span for span in below}
    owned: dict[tuple[str, str], list[CallPhase]] = {span.key: [] for span in below if is_attempt(span)}
    for span, name in _named(below):
        above: Span | None = span
        for _ in range(len(below)):
            if above is None or above.key in owned:
                break
            above = parents.get((above.trace_id, above.parent_id or ""))
        if above is not None and above.key in owned:
            owned[above.key].append(CallPhase(name=name, start_ns=span.start_ns, end_ns=span.end_ns, span=span))
    made = [
        TraceAttempt(
            span=parents[key],
            number=parents[key].count("fastlane.attempt.number"),
            kind=parents[key].text("fastlane.attempt.kind") or _kind_by_link(parents[key]),
            outcome=parents[key].text("fastlane.attempt.outcome"),
            status_code=parents[key].count("http.response.status_code", "http.status_code"),
            error=parents[key].error,
            connection_reused=parents[key].flag("fastlane.connection.reused"),
            phases=tuple(phases),
        )
        for key, phases in owned.items()
    ]
    return tuple(sorted(made, key=lambda each: (each.span.start_ns, each.number or 0)))


def _kind_by_link(span: Span) -> str | None:
    reasons = (link.attributes.get("fastlane.link.reason") for link in span.links)
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _reused(span: Span, answering: TraceAttempt | None) -> bool | None:
    if answering is not None and answering.connection_reused is not None:
        return answering.connection_reused
    return span.flag("fastlane.connection.reused")


def _drawn(span: Span, answering: TraceAttempt | None, told: Mapping[str, float], issued_ns: int) -> list[CallPhase]:
    """Phases from the durations on the call's span: their lengths are measured, their places follow from these."""
    lengths = {name: _ns(seconds) for name, seconds in told.items()}
    first_s = span.number("fastlane.time_to_first_token")
    prepared = span.start_ns + lengths.get("prepare", 0)
    at = prepared if answering is None else answering.span.start_ns
    before_token = sum(lengths.get(name, 0) for name in (*_WIRE, "server", "unsplit"))
    if first_s is not None:
        # What came before the first token ends with it, whatever failed before.
        at = max(prepared, issued_ns + _ns(first_s) - before_token)
    places = {"prepare": span.start_ns, "retries": prepared, "validate": span.end_ns - lengths.get("validate", 0)}
    phases = []
    for name in PHASES:
        length = lengths.get(name)
        # Attempts that have spans show themselves what went before the last.
        if length and not (name == "retries" and answering is not None):
            start = places.get(name, at)
            phases.append(CallPhase(name=name, start_ns=start, end_ns=start + length))
            at = at if name in places else start + length
    return phases


def _told(span: Span, issued_ns: int) -> dict[str, float]:
    """Seconds of each phase that the call's span itself tells of."""
    told = {
        name: seconds
        for name, attribute in _ATTRIBUTES.items()
        if (seconds := span.number(attribute)) is not None and seconds > 0
    }
    if queued_s := sum(span.number(name) or 0.0 for name in _QUEUES):
        told["queue"] = told.get("queue", 0.0) + queued_s
    before_s = (span.start_ns - issued_ns) / 1e9
    if before_s > 0:
        told.pop("prepare", None)
    prepare_s = told.get("prepare", 0.0)
    if (first_s := span.number("fastlane.time_to_first_token")) is not None:
        first_s -= before_s
    wire_s = sum(told.get(name, 0.0) for name in _WIRE)
    if (whole_s := span.number("fastlane.api_end_to_end.duration")) is not None:
        whole_s -= before_s
    tries = span.count("fastlane.attempt.count") or 1
    if first_s is None and whole_s is not None and wire_s and tries == 1 and "server" not in told:
        # Without a stream there is no first token: the wait and the answer are one.
        told["server"] = max(0.0, whole_s - prepare_s - wire_s)
    elif first_s is not None and "server" not in told:
        told["unsplit"] = max(0.0, first_s - prepare_s - wire_s)
    elif first_s is not None and tries > 1:
        told["retries"] = max(0.0, first_s - prepare_s - wire_s - told["server"])
    return told


def _waited_until_timeout_s(span: Span, answering: TraceAttempt | None, told: Mapping[str, float]) -> float | None:
    """Return how long a call that timed out had waited for the server; None where the server had begun to answer.

    None too if no span says that the request was sent: what timed out may have been the connection.
    """
    error = (span.error or "").lower()
    answered = {"fastlane.time_to_first_token", "fastlane.api_end_to_end.duration"} & span.attributes.keys()
    if answered or "server" in told or not ("timeout" in error or "timedout" in error):
        return None
    phases = {} if answering is None else {each.name: (each.end_ns - each.start_ns) / 1e9 for each in answering.phases}
    if "send" not in told and "send" not in phases:
        return None
    waited = span if answering is None else answering.span
    before = {name: told.get(name, phases.get(name, 0.0)) for name in _WIRE}
    waited_s = (waited.end_ns - waited.start_ns) / 1e9 - sum(before.values())
    if answering is None:
        waited_s -= told.get("prepare", 0.0) + (span.number("fastlane.retry.wait.duration") or 0.0)
    return max(0.0, waited_s)


def _ns(seconds: float | None) -> int:
    return 0 if seconds is None else int(seconds * 1e9)


def _durations(
    span: Span,
    phases: Sequence[CallPhase],
    attempts: Sequence[TraceAttempt],
    answering: TraceAttempt | None,
    told: Mapping[str, float],
) -> Mapping[str, float]:
    """Seconds of each phase: by the call's own span, else by the spans below it."""
    lengths: dict[str, float] = {}
    own = answering.phases if answering is not None and answering.phases else phases
    for phase in (*own, *(each for each in phases if each.name in ("prepare", "validate"))):
        if phase.name in PHASES:
            # Several addresses may be tried at the same time.
            lengths[phase.name] = max(lengths.get(phase.name, 0.0), (phase.end_ns - phase.start_ns) / 1e9)
    waits = [phase for phase in own if phase.name in ("wait", "first_token")]
    if waits:
        sent = max((phase.end_ns for phase in own if phase.name == "send"), default=waits[0].start_ns)
        lengths["server"] = max(0, max(phase.end_ns for phase in waits) - sent) / 1e9
    lengths |= {name: seconds for name, seconds in told.items() if not (waits and name == "unsplit")}
    if len(attempts) > 1 and answering is not None:
        before_s = (answering.span.start_ns - span.start_ns) / 1e9
        lengths["retries"] = max(0.0, before_s - lengths.get("prepare", 0.0))
    total_s = (span.end_ns - span.start_ns) / 1e9
    lengths["other"] = max(0.0, total_s - sum(lengths.values()))
    return {name: lengths[name] for name in PHASES if lengths.get(name, 0.0) > 0}

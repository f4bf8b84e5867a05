"""One call out of its span and those below it: what it requested, how it ended, and where its time went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ._model import PHASES, CallPhase, Span, TraceAttempt, TraceCall

# By name: https://github.com/open-telemetry/semantic-conventions/blob/main/docs/dotnet/dotnet-network-traces.md
_BY_NAME: Final = (
    ("wait_for_place", "queue"),
    ("HTTP wait_for_connection", "queue"),
    ("HTTP connection_setup", "connection"),
    ("DNS lookup", "dns"),
    ("socket connect", "connect"),
    ("proxy connect", "proxy"),
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
_WIRE: Final = ("queue", "dns", "connect", "proxy", "tls", "send")
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
    return span.text("gen_ai.operation.name") in _ACTIONS


def is_call(span: Span) -> bool:
    """Whether a span is a call to a model, made by fastlane or another library."""
    attributes = span.attributes
    return (
        span.text("gen_ai.operation.name") in _CALLS
        or "fastlane.attempt.count" in attributes
        or "fastlane.time_to_first_token" in attributes
        or attributes.get("openinference.span.kind") == "LLM"
        or (attributes.get("llm.request.type") in ("chat", "completion"))
    )


def is_attempt(span: Span) -> bool:
    return span.kind == "client" and ("http.request.method" in span.attributes or "http.method" in span.attributes)


def phase_of(span: Span) -> str | None:
    # A user's span may have such a name too, but has a scope of its own.
    if not span.scope.startswith("fastlane"):
        return None
    return next((phase for name, phase in _BY_NAME if span.name == name or span.name.startswith(f"{name} ")), None)


def call_of(span: Span, below: Callable[[Span], Sequence[Span]]) -> TraceCall:
    spans = below(span)
    found = _phases(spans)
    attempts = [_attempt(each, _phases(below(each))) for each in spans if is_attempt(each)]
    attempts.sort(key=lambda each: (each.span.start_ns, each.span.count("fastlane.attempt.number") or 0))
    answering = answering_of(attempts)
    known = _known_s(span)
    if (waited_s := _waited_until_timeout_s(span, answering, known)) is not None:
        known["server"] = waited_s
    if all(phase.name in ("prepare", "validate") for phase in found):
        found += _placed(span, answering, known)
    found.sort(key=lambda phase: (phase.start_ns, -phase.end_ns))
    reused = answering.connection_reused if answering is not None else None
    return TraceCall(
        span=span,
        model=span.text("gen_ai.request.model", "llm.model_name"),
        response_model=span.text("gen_ai.response.model"),
        provider=span.text("gen_ai.provider.name", "gen_ai.system", "llm.provider"),
        error=span.error,
        time_to_first_token_s=span.number("fastlane.time_to_first_token"),
        input_tokens=span.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        cached_tokens=span.count("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
        output_tokens=span.count(
            "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
        ),
        reasoning_tokens=span.count("gen_ai.usage.reasoning.output_tokens"),
        tokens_per_second=span.number("fastlane.decode.tokens_per_second"),
        route_reason=span.text("fastlane.route.reason"),
        connection_reused=span.flag("fastlane.connection.reused") if reused is None else reused,
        attempt_count=span.count("fastlane.attempt.count") or len(attempts) or None,
        cache_miss=span.text("fastlane.cache.mismatch_reason"),
        cache_miss_path=span.text("fastlane.cache.mismatch_path"),
        cache_lost_tokens=span.count("fastlane.cache.lost_tokens"),
        attempts=tuple(attempts),
        phases=tuple(found),
        durations_s=_durations_s(span, found, attempts, known),
    )


def answering_of(attempts: Sequence[TraceAttempt]) -> TraceAttempt | None:
    """The attempt that was answered, or the last that failed."""
    good = [each for each in attempts if each.error is None and each.outcome not in _NOT_ANSWERED]
    return next(reversed(good or attempts), None)


def attempt_note(attempt: TraceAttempt) -> str:
    """How an attempt differs from its neighbours, in a few words."""
    words = [attempt.kind if attempt.kind != "first" else None]
    if attempt.error is None and attempt.outcome in _NOT_ANSWERED:
        words.append(attempt.outcome)
    if attempt.status_code is not None and attempt.status_code >= 400 and str(attempt.status_code) != attempt.error:
        words.append(str(attempt.status_code))
    if attempt.connection_reused is not None:
        words.append("connection reused" if attempt.connection_reused else "new connection")
    return ", ".join(word for word in words if word)


def _attempt(span: Span, phases: Sequence[CallPhase]) -> TraceAttempt:
    reasons = [link.attributes.get("fastlane.link.reason") for link in span.links]
    return TraceAttempt(
        span=span,
        kind=span.text("fastlane.attempt.kind") or next((each for each in reasons if isinstance(each, str)), None),
        outcome=span.text("fastlane.attempt.outcome"),
        status_code=span.count("http.response.status_code", "http.status_code"),
        error=span.error,
        connection_reused=span.flag("fastlane.connection.reused"),
        phases=tuple(phases),
    )


def _phases(below: Iterable[Span]) -> list[CallPhase]:
    return [CallPhase(name, span.start_ns, span.end_ns, span) for span in below if (name := phase_of(span))]


def _known_s(span: Span) -> dict[str, float]:
    known = {name: seconds for name, attribute in _ATTRIBUTES.items() if (seconds := span.number(attribute))}
    if queued_s := sum(span.number(name) or 0.0 for name in _QUEUES):
        known["queue"] = known.get("queue", 0.0) + queued_s
    wire_s = sum(known.get(name, 0.0) for name in _WIRE)
    sent_s = known.get("prepare", 0.0) + wire_s
    first_s, whole_s = span.number("fastlane.time_to_first_token"), span.number("fastlane.api_end_to_end.duration")
    tries = span.count("fastlane.attempt.count") or 1
    if first_s is None and whole_s is not None and wire_s and tries == 1 and "server" not in known:
        # Without a stream there is no first token: the wait and the answer are one.
        known["server"] = max(0.0, whole_s - sent_s)
    elif first_s is not None and "server" not in known:
        known["unsplit"] = max(0.0, first_s - sent_s)
    elif first_s is not None and tries > 1:
        known["retries"] = max(0.0, first_s - sent_s - known["server"])
    return known


def _placed(span: Span, answering: TraceAttempt | None, known: Mapping[str, float]) -> Iterator[CallPhase]:
    """Yield phases of known lengths; their places follow from these."""
    lengths = {name: int(seconds * 1e9) for name, seconds in known.items()}
    first_s = span.number("fastlane.time_to_first_token")
    prepared = span.start_ns + lengths.get("prepare", 0)
    at = prepared if answering is None else answering.span.start_ns
    if first_s is not None:
        # What came before the first token ends with it, whatever failed before.
        before_token = sum(lengths.get(name, 0) for name in (*_WIRE, "server", "unsplit"))
        at = max(prepared, span.start_ns + int(first_s * 1e9) - before_token)
    places = {"prepare": span.start_ns, "retries": prepared, "validate": span.end_ns - lengths.get("validate", 0)}
    for name in PHASES:
        length = lengths.get(name)
        # Attempts that have spans show themselves what went before the last.
        if length and not (name == "retries" and answering is not None):
            start = places.get(name, at)
            yield CallPhase(name, start, start + length)
            at = at if name in places else start + length


def _waited_until_timeout_s(span: Span, answering: TraceAttempt | None, known: Mapping[str, float]) -> float | None:
    """Return how long a call that timed out had waited for the server, if its request was sent and not answered."""
    error = (span.error or "").lower()
    answered = {"fastlane.time_to_first_token", "fastlane.api_end_to_end.duration"} & span.attributes.keys()
    phases = {} if answering is None else {each.name: each.seconds for each in answering.phases}
    if answered or "server" in known or not ("timeout" in error or "timedout" in error):
        return None
    if "send" not in known and "send" not in phases:
        return None
    waited_s = (answering.span if answering else span).seconds
    waited_s -= sum(known.get(name, phases.get(name, 0.0)) for name in _WIRE)
    if answering is None:
        waited_s -= known.get("prepare", 0.0) + (span.number("fastlane.retry.wait.duration") or 0.0)
    return max(0.0, waited_s)


def _durations_s(
    span: Span, phases: Sequence[CallPhase], attempts: Sequence[TraceAttempt], known: Mapping[str, float]
) -> Mapping[str, float]:
    lengths: dict[str, float] = {}
    answering = answering_of(attempts)
    own = answering.phases if answering is not None and answering.phases else phases
    for phase in (*own, *(each for each in phases if each.name in ("prepare", "validate"))):
        if phase.name in PHASES:
            # Several addresses may be tried at the same time.
            lengths[phase.name] = max(lengths.get(phase.name, 0.0), phase.seconds)
    waits = [phase for phase in own if phase.name in ("wait", "first_token")]
    if waits:
        sent = max((phase.end_ns for phase in own if phase.name == "send"), default=waits[0].start_ns)
        lengths["server"] = max(0, max(phase.end_ns for phase in waits) - sent) / 1e9
    lengths |= {name: seconds for name, seconds in known.items() if not (waits and name == "unsplit")}
    if len(attempts) > 1 and answering is not None:
        before_s = (answering.span.start_ns - span.start_ns) / 1e9
        lengths["retries"] = max(0.0, before_s - lengths.get("prepare", 0.0))
    lengths["other"] = max(0.0, span.seconds - sum(lengths.values()))
    return {name: lengths[name] for name in PHASES if lengths.get(name, 0.0) > 0}

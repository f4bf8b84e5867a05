"""What metrics say of a call or a user action that is over: pure functions from its record to values with labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records.metrics import Metric
from . import _metric_names as metrics, _names as names
from ._attributes import max_gap_s, retry_wait_s
from ._ended import EndedAction, EndedCall
from ._labels import Labels
from ._provider import provider_name
from ._tree import attempt_error, attempt_outcome, server

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from ._experiment import Experiment
    from ._settings import Conventions

Measure = tuple[Metric, float, dict[str, Any]]
"""What is recorded, its value, and its labels, which are shared: nobody changes them."""

Labelled = tuple[tuple[str, Any], ...]
"""Names and values of labels."""

# An application has few, unless it makes names up as it goes.
_MOST_SETS = 512


class _Sets(NamedTuple):
    """The labels of the calls that have the same model, server and experiment."""

    generic: dict[str, Any]
    """As the conventions have them."""
    short: dict[str, Any]
    """Those by which all of fastlane's own metrics can be compared."""
    own: dict[str, Any]
    """With those that tell latencies apart."""
    made: dict[Any, dict[str, Any]]
    """Each of these with one or two more, by what was added."""


class Measures:
    """Turns what has ended into measures. Remembers labels, since making them costs more than the rest."""

    def __init__(self, labels: Labels | None = None) -> None:
        self._labels = labels or Labels()
        self._sets: dict[Any, _Sets] = {}

    def of(self, told: EndedCall | EndedAction, conventions: Conventions) -> Iterator[Measure]:
        """Everything that is to be recorded."""
        if isinstance(told, EndedAction):
            yield self._action(told)
            return
        record = told.record
        sets = self._of_call(told, record)
        if told.counts_generic:
            if conventions != "latest":
                yield from self._generic(record, sets)
            if conventions != "1.41" and told.operation != "embeddings":
                yield from self._inference(record, sets)
            elif conventions == "latest":
                # Embeddings are no inference by their word, and keep the older name.
                yield metrics.OPERATION_DURATION, record.duration_s, self._with_error(record, sets)
        yield from self._times(record, sets)
        yield from self._attempts(record, sets)
        yield from self._sections(record, sets)

    # Labels

    def _of_call(self, told: EndedCall, record: CallRecord) -> _Sets:
        experiment = told.experiment
        last = record.attempts[-1] if record.attempts else None
        model = record.model if last is None or last.model is None else last.model
        origin = record.origin if last is None or last.origin is None else last.origin
        name, arm = (None, None) if experiment is None else (experiment.name, experiment.arm)
        labels = tuple([label for section in record.sections for label in section.labels().items()])
        key = (told.operation, told.provider, model, record.response_model, origin, name, arm, labels)
        found = self._sets.get(key)
        if found is None:
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            found = self._sets[key] = self._make(told, model, record.response_model, origin, labels)
        return found

    def _make(
        self, told: EndedCall, model: str | None, response_model: str | None, origin: str, labels: Labelled
    ) -> _Sets:
        limited = self._labels.limited
        short: dict[str, Any] = {
            names.OPERATION: told.operation,
            names.PROVIDER: limited(names.PROVIDER, told.provider),
        }
        if model is not None:
            short[names.REQUEST_MODEL] = limited(names.REQUEST_MODEL, model)
        where = server(origin)
        wide = dict(short)
        if response_model is not None:
            wide[names.RESPONSE_MODEL] = limited(names.RESPONSE_MODEL, response_model)
        address = where[names.SERVER_ADDRESS]
        if address:
            wide[names.SERVER_ADDRESS] = limited(names.SERVER_ADDRESS, address)
        generic = dict(wide)
        port = where.get(names.SERVER_PORT)
        if port is not None and generic.get(names.SERVER_ADDRESS) == address:
            generic[names.SERVER_PORT] = port
        arms = {**self._arms(told.experiment), **self._limited(labels)}
        return _Sets(generic, {**short, **arms}, {**wide, **arms}, {})

    def _arms(self, experiment: Experiment | None) -> dict[str, Any]:
        if experiment is None:
            return {}
        limited = self._labels.limited
        return {
            names.EXPERIMENT_NAME: limited(names.EXPERIMENT_NAME, experiment.name),
            names.EXPERIMENT_ARM: limited(names.EXPERIMENT_ARM, experiment.arm),
        }

    def _error(self, error: str) -> str:
        return self._labels.limited(names.ERROR_TYPE, error)

    # The conventions' metrics

    def _generic(self, record: CallRecord, sets: _Sets) -> Iterator[Measure]:
        yield metrics.OPERATION_DURATION, record.duration_s, self._with_error(record, sets)
        first_chunk_s = _first_chunk_s(record)
        if first_chunk_s is not None:
            yield metrics.OPERATION_FIRST_CHUNK, first_chunk_s, sets.generic
            for gap_s in _chunk_gaps_s(record):
                yield metrics.OPERATION_PER_CHUNK, gap_s, sets.generic
        usage = record.usage
        if usage.estimated:  # the conventions ask for what the provider has counted, or nothing
            return
        if usage.input_tokens is not None:
            yield metrics.TOKEN_USAGE, usage.input_tokens, _more(sets, sets.generic, metrics.TOKEN_TYPE, "input")
        if usage.output_tokens is not None:
            yield metrics.TOKEN_USAGE, usage.output_tokens, _more(sets, sets.generic, metrics.TOKEN_TYPE, "output")

    def _inference(self, record: CallRecord, sets: _Sets) -> Iterator[Measure]:
        labels = sets.generic
        yield metrics.INFERENCE_DURATION, record.duration_s, self._with_error(record, sets)
        first_chunk_s = _first_chunk_s(record)
        if first_chunk_s is not None:
            yield metrics.INFERENCE_FIRST_CHUNK, first_chunk_s, labels
            for gap_s in _chunk_gaps_s(record):
                yield metrics.INFERENCE_PER_CHUNK, gap_s, labels
        usage = record.usage
        if usage.estimated:
            return
        for tokens, metric in (
            (usage.input_tokens, metrics.INFERENCE_INPUT),
            (usage.input_tokens, metrics.USED_INPUT),
            (usage.output_tokens, metrics.INFERENCE_OUTPUT),
            (usage.output_tokens, metrics.USED_OUTPUT),
            (usage.cached_tokens, metrics.USED_CACHE_READ),
            (usage.cache_write_tokens, metrics.USED_CACHE_WRITE),
            (usage.reasoning_tokens, metrics.USED_REASONING),
        ):
            if tokens is not None:
                yield metric, tokens, labels

    def _with_error(self, record: CallRecord, sets: _Sets) -> dict[str, Any]:
        if record.outcome == "failed":
            return _more(sets, sets.generic, names.ERROR_TYPE, self._error(record.error or "_OTHER"))
        if record.outcome == "truncated":
            return _more(sets, sets.generic, names.ERROR_TYPE, "truncated")
        return sets.generic

    # fastlane's own

    def _times(self, record: CallRecord, sets: _Sets) -> Iterator[Measure]:
        timeline, labels = record.timeline, sets.own
        last = record.attempts[-1] if record.attempts else None
        reused = None if last is None else last.connection_reused
        first_s = timeline.time_to_first_token_s
        if first_s is not None:
            told = labels if reused is None else _more(sets, labels, names.CONNECTION_REUSED, reused)
            yield metrics.TIME_TO_FIRST_TOKEN, first_s, told
        if last is not None:
            yield from _wire(last, reused, sets)
        token_ns = timeline.token_ns
        if len(token_ns) > 1:
            yield metrics.DECODE_DURATION, (token_ns[-1] - token_ns[0]) / 1e9, labels
            yield metrics.MAX_CHUNK_GAP, max_gap_s(token_ns), labels
            rate = record.decode_rate
            if rate is not None:
                yield metrics.DECODE_RATE, rate, labels
        if len(record.attempts) > 1:
            waited_s = retry_wait_s(record)
            if waited_s > 0:
                yield metrics.RETRY_WAIT, waited_s, sets.short

    def _attempts(self, record: CallRecord, sets: _Sets) -> Iterator[Measure]:
        for attempt in record.attempts:
            outcome, error = attempt_outcome(attempt, record), attempt_error(attempt)
            # Of a call that went to several upstreams, each has its own.
            elsewhere = (attempt.model, attempt.origin) != (record.model, record.origin)
            key = ("attempt", attempt.kind, outcome, error, *((attempt.model, attempt.origin) if elsewhere else ()))
            labels = sets.made.get(key)
            if labels is None:
                labels = {**sets.short, names.ATTEMPT_KIND: attempt.kind, names.ATTEMPT_OUTCOME: outcome}
                if elsewhere:
                    labels.update(self._upstream(attempt, record))
                if error is not None:
                    labels[names.ERROR_TYPE] = self._error(error)
                labels = _keep(sets, key, labels)
            yield metrics.ATTEMPTS, 1, labels
        last = record.attempts[-1] if record.attempts else None
        if last is None or last.request_body_bytes is None:
            return
        plain = record.plain_body_bytes
        if plain is None or last.form == "json":
            plain = last.request_body_bytes
        for stage, size in (("before", plain), ("after", last.request_body_bytes)):
            of = ("body", last.form, stage)
            labels = sets.made.get(of)
            if labels is None:
                labels = {**sets.short, names.REQUEST_ENCODING: last.form, metrics.BODY_STAGE: stage}
                labels = _keep(sets, of, labels)
            yield metrics.BODY_SIZE, size, labels

    def _upstream(self, attempt: Attempt, record: CallRecord) -> dict[str, Any]:
        """The labels that say where an attempt went, if that is not where the call's answer is from."""
        told: dict[str, Any] = {}
        provider = provider_name(attempt.origin or record.origin)
        told[names.PROVIDER] = self._labels.limited(names.PROVIDER, provider)
        if attempt.model is not None:
            told[names.REQUEST_MODEL] = self._labels.limited(names.REQUEST_MODEL, attempt.model)
        return told

    def _sections(self, record: CallRecord, sets: _Sets) -> Iterator[Measure]:
        for section in record.sections:
            for metric, value, labels in section.measures():
                added = tuple(labels.items())
                key = ("section", added)
                found = sets.made.get(key)
                if found is None:
                    found = _keep(sets, key, {**sets.short, **self._limited(added)})
                yield metric, value, found

    def _limited(self, labels: Labelled) -> dict[str, Any]:
        """Labels that a play gives: any text is one of a limited number."""
        limited = self._labels.limited
        return {name: value if type(value) is bool else limited(name, value) for name, value in labels}

    def _action(self, told: EndedAction) -> Measure:
        labels = {names.INTERACTION_NAME: self._labels.limited(names.INTERACTION_NAME, told.name)}
        labels.update(self._arms(told.experiment))
        if told.error is not None:
            labels[names.ERROR_TYPE] = self._error(told.error)
        return metrics.INTERACTION_DURATION, told.duration_s, labels


def _first_chunk_s(record: CallRecord) -> float | None:
    first_ns = record.timeline.first_event_ns
    return None if first_ns is None else (first_ns - record.timeline.started_ns) / 1e9


def _chunk_gaps_s(record: CallRecord) -> Iterator[float]:
    """Yield the time from each event with output to the one before it; the first event of a stream has none before."""
    first_ns, token_ns = record.timeline.first_event_ns, record.timeline.token_ns
    if first_ns is not None and len(token_ns) and token_ns[0] > first_ns:
        yield (token_ns[0] - first_ns) / 1e9
    for before_ns, at_ns in pairwise(token_ns):
        yield (at_ns - before_ns) / 1e9


def _wire(attempt: Attempt, reused: bool | None, sets: _Sets) -> Iterator[Measure]:
    wire = attempt.wire
    for phase, seconds in (
        ("queue", wire.connection_wait_s),
        ("dns", wire.dns_s),
        ("connect", wire.connect_s),
        ("tls", wire.tls_s),
        ("send", wire.send_s),
    ):
        if seconds is None:
            continue
        key = ("wire", phase, reused)
        labels = sets.made.get(key)
        if labels is None:
            labels = {**sets.own, metrics.WIRE_PHASE: phase}
            if reused is not None:
                labels[names.CONNECTION_REUSED] = reused
            labels = _keep(sets, key, labels)
        yield metrics.WIRE_DURATION, seconds, labels


def _more(sets: _Sets, labels: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The labels with one more."""
    key = (id(labels), name, value)
    found = sets.made.get(key)
    return _keep(sets, key, {**labels, name: value}) if found is None else found


def _keep(sets: _Sets, key: Any, labels: dict[str, Any]) -> dict[str, Any]:
    if len(sets.made) >= _MOST_SETS:
        sets.made.clear()
    sets.made[key] = labels
    return labels

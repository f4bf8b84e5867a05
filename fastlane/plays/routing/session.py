"""One call's part of routing: which upstream is tried next, until when, and what is learned of each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.compat.requests import changed_options
from fastlane.engine.caller import Caller
from fastlane.engine.effects import Flow, Sleep
from fastlane.engine.pipeline import log
from fastlane.engine.refused_fields import refusals
from fastlane.engine.session import CallOutcome, SendCall, Session
from fastlane.engine.upstream_attempt import Kind, UpstreamAttempt
from fastlane.engine.upstream_failures import rest_after, why_of
from fastlane.errors import CallRefusedError, ConfigurationError
from fastlane.knowledge.prediction._sighting import Failure, Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.records.route import Fallback, RoutingCandidate
from fastlane.records.urgency import CallUrgency

from ._adapting import Adapted, adapted
from .section import RoutingSection
from .upstreams import options_for, siblings_of

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.usage import Usage

    from ._decision import Candidate
    from ._plan import RoutePlan
    from .catalog.models import CatalogModel
    from .play import Routing

# A second attempt goes elsewhere only where that is about as fast.
_AS_FAST = 1.5
_NO_MORE_S = 0.05

_warned: set[tuple[str, str, str]] = set()
_MOST_WARNED = 1_000


class RoutingSession(Session):
    """Sends the call to the models of the decision, one after the other."""

    def __init__(self, play: Routing) -> None:
        self._play = play
        self._plan: RoutePlan | None = None
        self._upstreams: _Upstreams | None = None
        self._answered_by: CatalogModel | None = None
        self._fallbacks: tuple[Fallback, ...] = ()
        self._own_origin = ""

    def plan(self, call: Call) -> Call:
        """Ask for the first token, so that it can be seen whether the upstream is late."""
        plan = self._plan
        return call if plan is None or not plan.streams else call.replaced(streams_for="Routing")

    def around_call(self, send: SendCall) -> SendCall:
        """Send the call to the next model when one has failed before its first content."""

        def send_routed(call: Call) -> Flow:
            upstreams = self._decided(call)
            upstream, wait_s = upstreams.first(), 0.0
            while True:
                if wait_s > 0:
                    yield Sleep(upstreams.http, wait_s)
                try:
                    reply = yield from send(upstreams.call_to(upstream))
                except Exception as error:  # noqa: BLE001 - raised again where no other upstream is left
                    upstream, wait_s = self._following(upstreams, upstream, error)
                else:
                    self._answered_by = upstreams.answered(reply.state.upstream or upstream)
                    return reply

        return send_routed

    def _following(
        self, upstreams: _Upstreams, upstream: UpstreamAttempt, error: Exception
    ) -> tuple[UpstreamAttempt, float]:
        """Return the next attempt, and seconds to wait before it. Raises what the caller gets where there is none."""
        shown: Exception | None = None
        try:
            following = upstreams.after(upstream, error)
            self._fallbacks = upstreams.fallbacks
            if following is not None:
                return following
            shown, upstreams.error = upstreams.error or error, None
            if self._fallbacks:
                tried = "; ".join(f"{one.model} ({one.why})" for one in self._fallbacks)
                shown.add_note(f"Tried before: {tried}.")
            raise shown
        finally:
            # Its traceback refers to this frame, and would keep it until a garbage collection.
            del error, shown

    def _decided(self, call: Call) -> _Upstreams:
        """Choose the models. Raises CallRefusedError where none can answer the call."""
        upstream: UpstreamAttempt = call.upstream
        self._own_origin = upstream.state.origin
        try:
            plan = self._plan = self._decide(call, upstream.client)
        except (CallRefusedError, ConfigurationError):
            raise
        except Exception as error:
            upstream.state.pipeline.went_wrong(self._play, "around_call", error)
            raise CallRefusedError(
                f"model={call.model!r} asks for a route, and the play failed to find one: see the log"
            ) from error
        level, pipeline = plan.route.urgency, upstream.state.pipeline
        if level is not None:
            call = call.with_data(CallUrgency(level))
            if level != "interactive" and CallUrgency not in pipeline.reads:
                pipeline.warn_once(
                    f'Route(urgency="{level}") does not change when a call is sent: this client has no Urgency play. '
                    "Add Urgency() to its plays"
                )
        upstreams = self._upstreams = _Upstreams(plan, call)
        return upstreams

    def _decide(self, call: Call, client: Any) -> RoutePlan:
        shell = client._fastlane
        siblings, pipeline = siblings_of(shell.pipeline), shell.pipeline
        encodes = pipeline.compresses_bodies
        return self._play.decide(
            call,
            facts=shell.facts_of(call.origin),
            outlook=lambda model: siblings.outlook(model, asynchronous=client._asynchronous, client=client),
            missing_key=siblings.missing_key,
            encoded_share=(lambda origin: pipeline.encoded_share(origin, call.endpoint)) if encodes else None,
            is_checked=pipeline.checks_answers,
        )

    def close(self, outcome: CallOutcome) -> RoutingSection | None:
        """Say which model was chosen and why, and learn how fast the one was that answered."""
        plan, self._upstreams = self._plan, None
        if plan is None:
            return None
        section, record = self._section(plan, outcome), outcome.record
        self._play.knowledge.learn(replace(record, sections=(*record.sections, section)))
        return section

    def _section(self, plan: RoutePlan, outcome: CallOutcome) -> RoutingSection:
        question, decision = plan.question, plan.decision
        assert decision.reason is not None
        chosen = decision.ranked[0]
        first = chosen.prediction
        is_answered = outcome.ending not in ("failed", "cancelled")
        by = self._answered_by if is_answered else None
        return RoutingSection(
            asked=str(plan.route),
            task=question.task,
            min_quality=question.min_quality,
            min_pass_rate=question.min_pass_rate,
            quantile=question.quantile,
            reason=decision.reason,
            candidates=tuple([self._candidate(plan, one) for one in (*decision.ranked, *decision.rejected)]),
            chosen=chosen.name,
            model=by.name if by is not None else None,
            provider=by.provider if by is not None else None,
            predicted_s=first.total_s if first is not None else None,
            predicted_first_token_s=(
                first.connect_s + first.upload_s + first.first_token_s if first is not None else None
            ),
            actual_s=outcome.duration_s if is_answered else None,
            fallbacks=self._fallbacks,
            price=_price(by, outcome.usage) if by is not None else None,
            body_bytes=question.body_bytes,
            input_tokens=round(question.input_tokens),
        )

    def _candidate(self, plan: RoutePlan, one: Candidate) -> RoutingCandidate:
        model, prediction = plan.catalog.named(one.name), one.prediction
        return RoutingCandidate(
            model=one.name,
            provider=model.provider,
            origin=one.upstream.origin or self._own_origin,
            quality=model.quality,
            predicted_s=prediction.total_s if prediction is not None else None,
            connect_s=prediction.connect_s if prediction is not None else None,
            upload_s=prediction.upload_s if prediction is not None else None,
            first_token_s=prediction.first_token_s if prediction is not None else None,
            decode_s=prediction.decode_s if prediction is not None else None,
            cached_tokens=round(plan.question.cached_tokens.get(one.upstream, 0.0)),
            why_not=one.why_not,
        )


class _Upstreams:
    """The upstreams of one call: those that are left, and what its attempts there have shown."""

    def __init__(self, plan: RoutePlan, call: Call) -> None:
        upstream: UpstreamAttempt = call.upstream
        self._plan = plan
        self._call = call
        self._own = upstream
        self._steps: list[CatalogModel] = list(plan.steps)
        self._left = 1 + plan.fallbacks
        self._waited = False
        self._models: dict[UpstreamAttempt, CatalogModel] = {}
        self._deadline_ns = self._deadline(upstream)
        self.fallbacks: tuple[Fallback, ...] = ()
        self.error: Exception | None = None
        """The error of the last attempt that was sent."""

    def _deadline(self, upstream: UpstreamAttempt) -> int | None:
        seconds: Any = self._plan.deadline_s
        if seconds is None:
            seconds = upstream.options.timeout
            if isinstance(seconds, openai.NotGiven):
                seconds = upstream.client.timeout
            seconds = getattr(seconds, "read", seconds)
        return None if not isinstance(seconds, int | float) else self._call.issued_ns + int(seconds * 1e9)

    @property
    def http(self) -> Any:
        """The HTTP client of the caller's own client."""
        return self._own.http

    # The attempts

    def first(self) -> UpstreamAttempt:
        """Return the first attempt. Raises CallRefusedError where no model can be called."""
        first = self._next("first")
        if first is None:
            raise CallRefusedError("no model of the catalog can be called any more: the keys are gone")
        return first

    def call_to(self, upstream: UpstreamAttempt) -> Call:
        """Return the call as it goes to an upstream."""
        return self._call.replaced(body=upstream.body, upstream=upstream)

    def _has_others(self, beside: CatalogModel | None) -> bool:
        """Whether another upstream than this one is left for the call."""
        return self._left > 0 and any(model is not beside for model in self._steps)

    def _next(self, kind: Kind) -> UpstreamAttempt | None:
        """Return the next attempt that can be made; None where there is none."""
        withdraw = self._plan.knowledge.memory.withdraw
        while self._left > 0 and (model := self._take()) is not None:
            upstream = None
            try:
                self._left -= 1
                upstream = self._attempt(model, kind)
            finally:
                if upstream is None:
                    withdraw(model)
            if upstream is not None:
                # Until it begins: it may leave the queue without that.
                upstream.on_first_token = partial(withdraw, model)
                return upstream
            self._left += 1
        return None

    def _take(self) -> CatalogModel | None:
        """Take the next model of the decision, of those that do not rest if there are any."""
        # The decision has admitted the call to its first one.
        chosen = self._plan.decision.ranked[0].name
        for at, model in enumerate(self._steps):
            if model.name == chosen or self._plan.knowledge.memory.admit(model, now_ns()):
                return self._steps.pop(at)
        # One that rests is better than an error.
        return self._steps.pop(0) if self._steps else None

    def _attempt(self, model: CatalogModel, kind: Kind, *, avoid: str | None = None) -> UpstreamAttempt | None:
        plan, own = self._plan, self._own.client
        client = siblings_of(own._fastlane.pipeline).of(own, model)
        if client is None:
            return None  # its key has gone since the decision
        options, made = self._options_at(client, model)
        may_leave = self._has_others(model)
        if may_leave:
            # Another upstream is the better second try.
            options = changed_options(options, {"max_retries": 0})
        upstream = self._own.beside(
            kind=kind, client=client, options=options, deadline_ns=self._deadline_ns, avoid=avoid
        )
        self._models[upstream] = model
        upstream.may_leave = may_leave
        upstream.price = model.price
        upstream.changes, upstream.optional = made.changes, made.doubtful
        if model.facts is not None:
            upstream.facts = plan.knowledge.facts_of(model, client._fastlane.facts_of(upstream.state.origin))
        upstream.on_begin.append(partial(self._begins, upstream, model))
        upstream.on_failed = partial(self._failed, upstream)
        upstream.alternative = partial(self._alternative, upstream, model)
        return upstream

    def _options_at(self, client: Any, model: CatalogModel) -> tuple[Any, Adapted]:
        """Return the options of the call at a model, and what was changed for it."""
        plan, call, own, options = self._plan, self._call, self._own.client, self._own.options
        facts = plan.knowledge.facts_of(model, own._fastlane.facts_of(call.origin))
        made = adapted(call.body, call.endpoint, model, facts, extra=frozenset(options.extra_json or ()))
        options = options_for(options, own, model, own=model.base_url is None, forward=plan.forward_headers)
        origin = plan.catalog.origin_of(model) or call.origin
        made = _without_refused(made, refusals.at(origin, model.model, Caller(client, options)), model)
        return changed_options(options, {"json_data": made.body, "extra_json": None}), made

    def _begins(self, upstream: UpstreamAttempt, model: CatalogModel) -> None:
        """An attempt has its slot: have it known for how long it waits."""
        plan, time_ns = self._plan, now_ns()
        memory, uncached = plan.knowledge.memory, _uncached(plan, model)
        upstream.on_first_token = partial(memory.over, memory.began(model, uncached, time_ns))
        timeout_s = plan.first_token_timeout_s
        if timeout_s is None:
            timeout_s = memory.first_token_timeout(model, uncached, time_ns)
        upstream.wait_for_first_token(timeout_s)

    # An attempt beside one that is late

    def _alternative(self, first: UpstreamAttempt, model: CatalogModel) -> UpstreamAttempt | None:
        """Make the attempt beside one that is late: at another model that is about as fast, or at the same one."""
        other = self._as_fast_as(model)
        if other is None:
            second = self._attempt(model, "hedge", avoid=first.connection)
        else:
            second = self._attempt(other, "hedge")
        if second is not None:
            second.on_begin = [partial(self._second_begins, first, second), *second.on_begin]
        return second

    def _second_begins(self, first: UpstreamAttempt, second: UpstreamAttempt) -> None:
        model = self._models[second]
        if model in self._steps:
            self._steps.remove(model)
        second.may_leave = first.may_leave and self._has_others(None)
        if first.may_leave and not second.may_leave:
            # These two are all that is left.
            first.may_leave = False
            first.patience.until_ns = first.deadline_ns

    def _as_fast_as(self, model: CatalogModel) -> CatalogModel | None:
        """Return a model of the next ones that is about as fast and whose breakers are closed, or None."""
        plan = self._plan
        expected = {one.name: one.prediction for one in plan.decision.ranked}
        this = expected.get(model.name)
        for other in tuple(self._steps):
            that = expected.get(other.name)
            if this is None or that is None or not plan.knowledge.memory.is_well(other):
                continue
            # (The same upstream may have to be connected to once more as well.)
            if that.upload_s + that.first_token_s <= _AS_FAST * (this.upload_s + this.first_token_s) + _NO_MORE_S:
                return other
        return None

    # What comes of an attempt

    def after(self, upstream: UpstreamAttempt, error: Exception) -> tuple[UpstreamAttempt, float] | None:
        """Return the next attempt, and seconds to wait before it; None where the error is the caller's."""
        time_ns = now_ns()
        if isinstance(error, CallRefusedError) and not upstream.started_ns and why_of(error) != "queue":
            # A play refuses to send the call to this upstream, which another may well take.
            upstream.ended()
            self._left += 1
            self._add_fallback(upstream, "unfit", time_ns)
            begun = any(one.started_ns for one in upstream.attempts.made)
            following = self._next("fallback" if begun else "first")
            return None if following is None else (following, 0.0)
        self.error = error
        upstream = upstream.attempts.failed or upstream
        why, rest_s = self._failed(upstream, error)
        if why is None or (upstream.was_claimed and upstream.state.stream) or self._is_over(time_ns):
            return None
        model, wait_s = self._models[upstream], 0.0
        if why == "rate_limit" and rest_s is not None and not self._waited and self._is_worth(rest_s, model):
            # It asks for a shorter wait than the next one would take longer.
            self._waited, wait_s = True, rest_s
            following = self._attempt(model, "fallback")
        else:
            following = self._next("fallback")
        if following is None:
            return None
        self._add_fallback(upstream, why, time_ns)
        return following, wait_s

    def _add_fallback(self, upstream: UpstreamAttempt, why: str, time_ns: int) -> None:
        state = upstream.state
        after_s = (time_ns - state.started_ns) / 1e9
        fallback = Fallback(model=self._models[upstream].name, origin=state.origin, why=why, after_s=after_s)
        self.fallbacks += (fallback,)

    def _failed(self, upstream: UpstreamAttempt, error: Exception) -> tuple[str | None, float | None]:
        """Learn from an attempt that has failed. Returns why, None for a mistake in the call; and how long it rests."""
        upstream.ended()
        why = upstream.why if upstream.why is not None else why_of(error)
        if why is None or why == "deadline":
            return None, None
        if why == "queue":
            return why, None
        rest_s = rest_after(why, error)
        self._note_failure(upstream, why, rest_s, now_ns())
        return why, rest_s

    def _note_failure(self, upstream: UpstreamAttempt, why: Failure, rest_s: float | None, time_ns: int) -> None:
        if why == "too_long":
            return  # which says nothing of the upstream
        plan, model = self._plan, self._models[upstream]
        _warn(plan, upstream, model, why)
        at = _upstream_of(plan, model)
        plan.knowledge.note(
            Sighting(
                model=at.model,
                origin=at.origin,
                task=plan.question.task,
                uncached_tokens=_uncached(plan, model),
                late_s=(time_ns - upstream.started_ns) / 1e9 if upstream.is_late else None,
                failure=why,
                rest_s=rest_s,
            ),
            time_ns,
        )

    def answered(self, winner: UpstreamAttempt) -> CatalogModel:
        """Learn from the attempt that has brought the answer, and from those that it was faster than."""
        plan, time_ns, self.error = self._plan, now_ns(), None
        model = self._models[winner]
        facts = plan.knowledge.facts_of(model, self._own.client._fastlane.facts_of(winner.state.origin))
        plan.knowledge.read(winner.state.call_id, model, facts, time_ns)
        for loser, its in self._models.items():
            if loser.is_lost:
                at = _upstream_of(plan, its)
                plan.knowledge.note(
                    Sighting(
                        model=at.model,
                        origin=at.origin,
                        task=plan.question.task,
                        uncached_tokens=_uncached(plan, its),
                        late_s=(time_ns - loser.started_ns) / 1e9,
                    ),
                    time_ns,
                )
        return model

    def _is_over(self, time_ns: int) -> bool:
        return self._deadline_ns is not None and time_ns >= self._deadline_ns

    def _is_worth(self, rest_s: float, model: CatalogModel) -> bool:
        if not self._steps:
            return False  # openai's own loop has waited already
        expected = {one.name: one.prediction for one in self._plan.decision.ranked}
        this, that = expected.get(model.name), expected.get(self._steps[0].name)
        return this is not None and that is not None and rest_s <= that.total_s - this.total_s


def _without_refused(made: Adapted, known: frozenset[str], model: CatalogModel) -> Adapted:
    """Take out what this upstream has refused before, which cost a round trip."""
    refused = tuple([name for name in made.doubtful if name in known])
    if not refused:
        return made
    return Adapted(
        {name: value for name, value in made.body.items() if name not in refused},
        (*made.changes, f"left out {', '.join(refused)}, which {model.name} has refused before"),
        tuple([name for name in made.doubtful if name not in refused]),
    )


def _upstream_of(plan: RoutePlan, model: CatalogModel) -> Upstream:
    return Upstream(model.model, plan.catalog.origin_of(model))


def _uncached(plan: RoutePlan, model: CatalogModel) -> float:
    question = plan.question
    return max(0.0, question.input_tokens - question.cached_tokens.get(_upstream_of(plan, model), 0.0))


def _warn(plan: RoutePlan, upstream: UpstreamAttempt, model: CatalogModel, why: Failure) -> None:
    """Log once what would stay hidden behind the models that answer instead: a mistake in the catalog, perhaps."""
    attempts = upstream.state.attempts
    last = attempts[-1] if attempts else None
    if last is None or (why != "denied" and last.error != "ConnectError"):
        return
    what = "could not be connected to" if last.status_code is None else f"answered {last.status_code}"
    origin = plan.catalog.origin_of(model) or upstream.state.origin
    if (model.name, origin, what) in _warned or len(_warned) >= _MOST_WARNED:
        return
    _warned.add((model.name, origin, what))
    log.warning(
        "the model %r of the catalog %s at %s: its model, base_url, api_key_env and the server's certificate are to be "
        "looked at; other models answer meanwhile (said once)",
        model.name,
        what,
        origin,
    )


def _price(model: CatalogModel, usage: Usage) -> float | None:
    """What the answer cost, in the catalog's currency; None where its price or its tokens are not known."""
    price = model.price
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = usage.cached_tokens or 0
    cached_price = price.cached_input if price.cached_input is not None else price.input
    tokens = (usage.input_tokens - cached) * price.input + cached * cached_price + usage.output_tokens * price.output
    return tokens / 1e6

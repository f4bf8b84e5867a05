"""One call's part of routing: which model is tried next, until when, and what is learned of each."""

from __future__ import annotations

from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.engine.client_state import Caller
from fastlane.engine.effects import Flow
from fastlane.engine.refused_fields import refusals
from fastlane.engine.session import CallOutcome, SendCall, Session
from fastlane.engine.upstream_attempt import UpstreamAttempt
from fastlane.engine.upstream_failures import rest_after, why_of
from fastlane.errors import CallRefusedError, ConfigurationError
from fastlane.knowledge.sightings import Failure, Sighting
from fastlane.providers import facts_of
from fastlane.records.attempts import AttemptKind
from fastlane.records.plays import CallUrgency, Fallback, RoutingCandidate

from .adapting import Adapted, adapted
from .clients import missing_key, options_for, upstream_clients_of
from .section import RoutingSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.usage import Usage

    from .catalog.models import CatalogModel
    from .catalog.route import Route
    from .play import Routing
    from .router import Candidate, Decision, RouteQuery

# A second attempt goes to another model only where that is about as fast.
_AS_FAST = 1.5
_AS_FAST_S = 0.05


class RoutingSession(Session):
    """Sends the call to the models of the decision, one after the other."""

    def __init__(self, play: Routing) -> None:
        self._play = play
        self._choice: _ModelChoice | None = None
        self._answered_by: CatalogModel | None = None

    def plan(self, call: Call) -> Call:
        """Have the answer streamed, so that it can be seen whether the upstream is late."""
        return call if self._choice is None or not self._play.streams else call.replaced(streams_for="Routing")

    def around_call(self, send: SendCall) -> SendCall:
        """Send the call to the next model when one has failed before its first content."""

        def send_routed(call: Call) -> Flow:
            choice = self._choice = self._decide(call)
            upstream = choice.first()
            while True:
                try:
                    reply = yield from send(choice.call_to(upstream))
                except Exception as error:  # noqa: BLE001 - raised again where no other model is left
                    upstream = choice.after(upstream, error)
                else:
                    self._answered_by = choice.answered(reply.state.upstream or upstream)
                    return reply

        return send_routed

    def _decide(self, call: Call) -> _ModelChoice:
        """Choose the models. Raises CallRefusedError where none can answer the call."""
        upstream: UpstreamAttempt = call.upstream
        client, play = upstream.client, self._play
        shell = client._fastlane
        clients, pipeline = upstream_clients_of(shell.pipeline), shell.pipeline
        facts = facts_of(call.origin)
        try:
            route = play.route_of(call)
            query, decision = play.decide(
                call,
                route,
                facts=facts,
                forecast=partial(clients.forecast, client),
                missing_key=missing_key,
                is_checked=pipeline.checks_answers,
            )
        except (CallRefusedError, ConfigurationError):
            raise
        except Exception as error:
            pipeline.report_error(play, "around_call", error)
            raise CallRefusedError(
                f"model={call.model!r} asks for a route, and the play failed to find one: see the log"
            ) from error
        if route.urgency is not None:
            call = call.with_data(CallUrgency(route.urgency))
            if route.urgency != "interactive" and CallUrgency not in pipeline.reads:
                pipeline.warn_once(
                    f'Route(urgency="{route.urgency}") does not change when a call is sent: this client has no Urgency '
                    "play. Add Urgency() to its plays"
                )
        return _ModelChoice(play, call, route, query, decision)

    def close(self, outcome: CallOutcome) -> RoutingSection | None:
        """Say which model was chosen and why, and learn how fast the one was that answered."""
        choice, self._choice = self._choice, None
        if choice is None:
            return None
        section = self._section(choice, outcome)
        self._play.knowledge.learn(outcome.record, section, choice.query)
        return section

    def _section(self, choice: _ModelChoice, outcome: CallOutcome) -> RoutingSection:
        query, decision = choice.query, choice.decision
        assert decision.reason is not None
        first = decision.ranked[0].prediction
        is_answered = outcome.ending not in ("failed", "cancelled")
        by = self._answered_by if is_answered else None
        return RoutingSection(
            asked=str(choice.route),
            task=query.task,
            min_quality=query.min_quality,
            min_pass_rate=query.min_pass_rate,
            quantile=query.quantile,
            reason=decision.reason,
            candidates=tuple([choice.candidate(one) for one in (*decision.ranked, *decision.rejected)]),
            chosen=decision.ranked[0].name,
            model=by.name if by is not None else None,
            provider=by.provider if by is not None else None,
            predicted_s=first.total_s if first is not None else None,
            predicted_first_token_s=first.connect_s + first.upload_s + first.first_token_s
            if first is not None
            else None,
            actual_s=outcome.duration_s if is_answered else None,
            fallbacks=choice.fallbacks,
            price=_price(by, outcome.usage) if by is not None else None,
            body_bytes=query.body_bytes,
            input_tokens=round(query.input_tokens),
        )


class _ModelChoice:
    """The models of one call: those that are left, and what its attempts there have shown."""

    def __init__(self, play: Routing, call: Call, route: Route, query: RouteQuery, decision: Decision) -> None:
        self.route = route
        self.query = query
        self.decision = decision
        self.fallbacks: tuple[Fallback, ...] = ()
        self._play = play
        self._knowledge = play.knowledge
        self._router = play.knowledge.router
        self._call = call
        self._own: UpstreamAttempt = call.upstream
        self._own_facts = facts_of(call.origin)
        self._own_origin = self._own.state.origin
        self._steps = [play.knowledge.catalog.named(one.name) for one in (*decision.ranked, *decision.resting)]
        """What is left to be tried, in order."""
        self._expected = {one.name: one.prediction for one in decision.ranked}
        self._left = 1 + play.fallbacks
        self._models: dict[UpstreamAttempt, CatalogModel] = {}
        self._deadline_ns = self._deadline()
        self._error: Exception | None = None
        """The error of the last attempt that was sent."""

    def _deadline(self) -> int | None:
        seconds: Any = self._play.deadline_s
        if seconds is None:
            seconds = self._own.options.timeout
            if isinstance(seconds, openai.NotGiven):
                seconds = self._own.client.timeout
            seconds = getattr(seconds, "read", seconds)
        if not isinstance(seconds, int | float) or not seconds < TIMEOUT_MAX:
            return None  # no limit, or one that no clock counts to
        return self._call.issued_ns + int(seconds * 1e9)

    def candidate(self, one: Candidate) -> RoutingCandidate:
        """Return what the record says of a candidate."""
        model, seconds = self._knowledge.catalog.named(one.name), {}
        if one.prediction is not None:
            seconds = one.prediction._asdict()
            del seconds["output_tokens"]
            seconds["predicted_s"] = seconds.pop("total_s")
        return RoutingCandidate(
            model=one.name,
            provider=model.provider,
            origin=one.upstream.origin or self._own_origin,
            quality=model.quality,
            cached_tokens=round(self.query.cached_tokens.get(one.upstream, 0.0)),
            why_not=one.why_not,
            **seconds,
        )

    # The attempts

    def first(self) -> UpstreamAttempt:
        """Return the first attempt. Raises CallRefusedError where no model can be called."""
        first = self._next("first")
        if first is None:
            raise CallRefusedError("no model of the catalog can be called any more: the keys are gone")
        return first

    def _has_others(self, beside: CatalogModel | None) -> bool:
        """Whether another model than this one is left for the call."""
        return self._left > 0 and any(model is not beside for model in self._steps)

    def _next(self, kind: AttemptKind) -> UpstreamAttempt | None:
        """Return the next attempt that can be made; None where there is none."""
        while self._left > 0 and (model := self._take()) is not None:
            upstream = None
            try:
                upstream = self._attempt(model, kind)
            finally:
                if upstream is None:
                    self._router.withdraw(model)
            if upstream is not None:
                self._left -= 1
                # Until it begins: it may leave the queue without that.
                upstream.on_first_token = partial(self._router.withdraw, model)
                return upstream
        return None

    def _take(self) -> CatalogModel | None:
        """Take the next model of the decision, of those that do not rest if there are any."""
        # The decision has admitted the call to its first one.
        chosen = self.decision.ranked[0].name
        for index, model in enumerate(self._steps):
            if model.name == chosen or self._router.admit(model, now_ns()):
                return self._steps.pop(index)
        # One that rests is better than an error.
        return self._steps.pop(0) if self._steps else None

    def _attempt(self, model: CatalogModel, kind: AttemptKind, *, avoid: str | None = None) -> UpstreamAttempt | None:
        """Make an attempt at a model; None where its key has gone since the decision."""
        own = self._own.client
        client = upstream_clients_of(own._fastlane.pipeline).of(own, model)
        if client is None:
            return None
        may_leave = self._has_others(model)
        made = self._adapted(model)
        options = self._own.options
        if model.base_url is not None:
            options = options_for(options, own, self._play.forward_headers)
        made = self._without_refused(made, model, Caller(client, options))
        changes: dict[str, Any] = {"json_data": made.body, "extra_json": None}
        if may_leave:
            # Another model is the better second try.
            changes["max_retries"] = 0
        upstream = self._own.another(
            kind=kind,
            client=client,
            options=options.model_copy(update=changes),
            deadline_ns=self._deadline_ns,
            avoid=avoid,
        )
        self._models[upstream] = model
        upstream.may_leave = may_leave
        upstream.price = model.price
        upstream.changes, upstream.optional = made.changes, made.optional
        if model.facts is not None:
            upstream.facts = self._knowledge.queries.rules_of(model, self._own_facts).facts
        upstream.on_begin.append(partial(self._begins, upstream, model))
        upstream.on_failed = partial(self._failed, upstream)
        upstream.alternative = partial(self._alternative, upstream, model)
        return upstream

    def _adapted(self, model: CatalogModel) -> Adapted:
        call, extra = self._call, frozenset(self._own.options.extra_json or ())
        rules = self._knowledge.queries.rules_of(model, self._own_facts)
        return adapted(call.body, call.endpoint, model.model, rules, extra=extra)

    def _without_refused(self, made: Adapted, model: CatalogModel, caller: Caller) -> Adapted:
        """Take out what this upstream has refused before, which cost a round trip."""
        origin = self._router.states[model.name].upstream.origin or self._call.origin
        known = refusals.at(origin, model.model, caller)
        refused = [name for name in made.optional if name in known]
        if not refused:
            return made
        return Adapted(
            {name: value for name, value in made.body.items() if name not in refused},
            (*made.changes, f"left out {', '.join(refused)}, which {model.name} has refused before"),
            tuple([name for name in made.optional if name not in refused]),
        )

    def _uncached(self, model: CatalogModel) -> float:
        return self.query.uncached_tokens(self._router.states[model.name].upstream)

    def _begins(self, upstream: UpstreamAttempt, model: CatalogModel) -> None:
        """An attempt has its slot: from now on it waits for its first token."""
        time_ns, uncached = now_ns(), self._uncached(model)
        upstream.on_first_token = self._router.began(model, uncached, time_ns)
        timeout_s = self._play.first_token_timeout_s
        if timeout_s is None:
            timeout_s = self._router.first_token_timeout(model, uncached, time_ns)
        upstream.wait_for_first_token(timeout_s)

    # An attempt beside one that is late

    def _alternative(self, first: UpstreamAttempt, model: CatalogModel) -> UpstreamAttempt | None:
        """Make the attempt beside one that is late: at another model that is about as fast, or at the same one."""
        other = self._as_fast_as(model)
        second = self._attempt(other or model, "hedge", avoid=first.connection if other is None else None)
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
        this = self._expected.get(model.name)
        for other in self._steps:
            that = self._expected.get(other.name)
            if this is None or that is None or not self._router.is_well(other):
                continue
            # (The same upstream may have to be connected to once more as well.)
            most_s = _AS_FAST * (this.upload_s + this.first_token_s) + _AS_FAST_S
            if that.upload_s + that.first_token_s <= most_s:
                return other
        return None

    # What comes of an attempt

    def after(self, upstream: UpstreamAttempt, error: Exception) -> UpstreamAttempt:
        """Return the attempt after one that has failed. Raises what the caller gets where there is none."""
        shown: Exception | None = None
        try:
            following = self._following(upstream, error)
            if following is not None:
                return following
            shown, self._error = self._error or error, None
            if self.fallbacks:
                tried = "; ".join(f"{one.model} ({one.why})" for one in self.fallbacks)
                shown.add_note(f"Tried before: {tried}.")
            raise shown
        finally:
            # Its traceback refers to this frame, and would keep it until a garbage collection.
            del error, shown

    def _following(self, upstream: UpstreamAttempt, error: Exception) -> UpstreamAttempt | None:
        time_ns = now_ns()
        if isinstance(error, CallRefusedError) and not upstream.started_ns and why_of(error) != "queue":
            # A play refuses to send the call to this model, which another may well take.
            upstream.ended()
            self._left += 1
            self._add_fallback(upstream, "unfit", time_ns)
            return self._next("fallback" if any(one.started_ns for one in upstream.attempts.made) else "first")
        self._error = error
        upstream = upstream.attempts.failed or upstream
        why = self._failed(upstream, error)
        is_over = self._deadline_ns is not None and time_ns >= self._deadline_ns
        if why is None or is_over or (upstream.was_claimed and upstream.state.stream):
            return None
        following = self._next("fallback")
        if following is not None:
            self._add_fallback(upstream, why, time_ns)
        return following

    def _add_fallback(self, upstream: UpstreamAttempt, why: str, time_ns: int) -> None:
        state = upstream.state
        after_s = (time_ns - state.started_ns) / 1e9
        model = self._models[upstream].name
        self.fallbacks += (Fallback(model=model, origin=state.origin, why=why, after_s=after_s),)

    def _failed(self, upstream: UpstreamAttempt, error: Exception) -> str | None:
        """Learn from an attempt that has failed. Returns why; None for a mistake in the call."""
        upstream.ended()
        why = upstream.why if upstream.why is not None else why_of(error)
        if why is None or why == "deadline":
            return None
        # A full queue of ours, and a prompt that is too long, say nothing of the upstream.
        if why != "queue" and why != "too_long":  # noqa: PLR1714 - narrows the type
            self._warn(upstream, why)
            late_s = (now_ns() - upstream.started_ns) / 1e9 if upstream.is_late else None
            self._note(upstream, late_s=late_s, failure=why, rest_s=rest_after(why, error))
        return why

    def _note(self, upstream: UpstreamAttempt, **shown: Any) -> None:
        model = self._models[upstream]
        at = self._router.states[model.name].upstream
        uncached = self._uncached(model)
        sighting = Sighting(model=at.model, origin=at.origin, task=self.query.kind, uncached_tokens=uncached, **shown)
        self._knowledge.note(sighting, now_ns())

    def call_to(self, upstream: UpstreamAttempt) -> Call:
        """Return the call as it goes to an upstream."""
        return self._call.replaced(body=upstream.body, upstream=upstream)

    def answered(self, winner: UpstreamAttempt) -> CatalogModel:
        """Learn from the attempt that has brought the answer, and from those that it was faster than."""
        model, time_ns, self._error = self._models[winner], now_ns(), None
        self._knowledge.queries.note_read(self.query, model, self._own_facts, time_ns)
        for loser in self._models:
            if loser.is_lost:
                self._note(loser, late_s=(time_ns - loser.started_ns) / 1e9)
        return model

    def _warn(self, upstream: UpstreamAttempt, why: Failure) -> None:
        """Log once what the models that answer instead would hide: a mistake in the catalog, perhaps."""
        attempts = upstream.state.attempts
        last = attempts[-1] if attempts else None
        if last is None or (why != "denied" and last.error != "ConnectError"):
            return
        what = "could not be connected to" if last.status_code is None else f"answered {last.status_code}"
        self._own.client._fastlane.pipeline.warn_once(
            f"The model {self._models[upstream].name!r} of the catalog {what} at {upstream.state.origin}. Check its "
            "model, base_url and api_key_env, and the server's certificate. Other models answer meanwhile."
        )


def _price(model: CatalogModel, usage: Usage) -> float | None:
    """Return what the answer cost, in the catalog's currency; None where its price or its tokens are not known."""
    if model.price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return model.price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)

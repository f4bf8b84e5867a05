"""One call's part of routing: which model is tried next, until when, and what is learned of each."""

from __future__ import annotations

from functools import partial
from math import inf
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.engine.effects import Flow
from fastlane.engine.session import CallOutcome, SendCall, Session
from fastlane.engine.upstream_attempt import UpstreamAttempt
from fastlane.engine.upstream_failures import rest_after, why_of
from fastlane.errors import CallRefusedError, ConfigurationError
from fastlane.knowledge.sightings import Failure, Sighting
from fastlane.providers import facts_of
from fastlane.records.attempts import AttemptKind
from fastlane.records.plays import Fallback, RoutingCandidate

from .adapting import adapted
from .clients import missing_key, options_for, upstream_clients_of
from .section import RoutingSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.usage import Usage

    from .catalog.models import CatalogModel
    from .catalog.route import Route
    from .play import Routing
    from .router import Candidate, Decision, RouteQuery


class RoutingSession(Session):
    """Sends the call to the models of the decision, one after the other."""

    def __init__(self, play: Routing) -> None:
        self._play = play
        self._choice: _ModelChoice | None = None
        self._answered_by: CatalogModel | None = None

    def plan(self, call: Call) -> Call:
        """Leave out what the upstream has refused before, and have the answer streamed, to see whether it is late."""
        refused = sorted(call.refused.intersection(call.optional))
        if refused:
            changed = f"left out {', '.join(refused)}, which {call.model} has refused before"
            body = {name: value for name, value in call.body.items() if name not in refused}
            call = call.replaced(body=body, changes=(*call.changes, changed))
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
                    self._answered_by = choice.answered(upstream)
                    return reply

        return send_routed

    def _decide(self, call: Call) -> _ModelChoice:
        """Choose the models. Raises CallRefusedError if none can answer the call."""
        play, pipeline = self._play, call.upstream.client._fastlane.pipeline

        def warned_missing_key(model: CatalogModel) -> str | None:
            why = missing_key(model)
            if why is not None:
                pipeline.warn_once(f"Routing leaves out the model {model.name!r} of the catalog: {why}")
            return why

        try:
            route = play.route_of(call)
            query, decision = play.decide(
                call,
                route,
                facts=facts_of(call.origin),
                missing_key=warned_missing_key,
                is_checked=pipeline.checks_answers,
            )
        except (CallRefusedError, ConfigurationError):
            raise
        except Exception as error:
            pipeline.report_error(play, "around_call", error)
            raise CallRefusedError(
                f"model={call.model!r} asks for a route, and the play failed to find one: see the log"
            ) from error
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
        first = decision.ranked[0]
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
            chosen=first.name,
            model=by.name if by is not None else None,
            provider=by.provider if by is not None else None,
            predicted_s=first.total_s,
            predicted_first_token_s=first.first_token_s,
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
        self._left = 1 + play.fallbacks
        self._model: CatalogModel = self._steps[0]
        """The model of the latest attempt."""
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
        model, is_predicted = self._knowledge.catalog.named(one.name), one.total_s < inf
        return RoutingCandidate(
            model=one.name,
            provider=model.provider,
            origin=self._router.states[one.name].upstream.origin or self._own_origin,
            quality=model.quality,
            predicted_s=one.total_s if is_predicted else None,
            first_token_s=one.first_token_s if is_predicted else None,
            decode_s=one.decode_s if is_predicted else None,
            cached_tokens=round(self.query.cached_tokens.get(one.name, 0.0)),
            why_not=one.why_not,
        )

    # The attempts

    def first(self) -> UpstreamAttempt:
        """Return the first attempt. Raises CallRefusedError if no model can be called."""
        first = self._next("first")
        if first is None:
            raise CallRefusedError("no model of the catalog has a usable API key any more: set their variables again")
        return first

    def _next(self, kind: AttemptKind) -> UpstreamAttempt | None:
        """Return the next attempt that can be made; None if there is none."""
        while self._left > 0 and (model := self._take()) is not None:
            upstream = self._attempt(model, kind)
            if upstream is not None:
                self._model = model
                self._left -= 1
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

    def _attempt(self, model: CatalogModel, kind: AttemptKind) -> UpstreamAttempt | None:
        """Make an attempt at a model; None if its key has gone since the decision."""
        call, own = self._call, self._own.client
        client = upstream_clients_of(own._fastlane.pipeline).of(own, model)
        if client is None:
            return None
        may_leave = self._left > 1 and bool(self._steps)
        options = self._own.options
        rules = self._knowledge.rules_of(model, self._own_facts)
        made = adapted(call.body, call.endpoint, model.model, rules, extra=frozenset(options.extra_json or ()))
        if model.base_url is not None:
            options = options_for(options, own, self._play.forward_headers)
        changes: dict[str, Any] = {"json_data": made.body, "extra_json": None}
        if may_leave:
            # Another model is the better second try.
            changes["max_retries"] = 0
        upstream = self._own.another(
            kind=kind, client=client, options=options.model_copy(update=changes), deadline_ns=self._deadline_ns
        )
        upstream.may_leave = may_leave
        upstream.price = model.price
        upstream.changes, upstream.optional = made.changes, made.optional
        if model.facts is not None:
            upstream.facts = rules.facts
        upstream.on_begin.append(partial(self._begins, upstream, model))
        upstream.on_failed = partial(self._failed, upstream)
        return upstream

    def _uncached(self, model: CatalogModel) -> float:
        return self.query.uncached_tokens(model.name)

    def _begins(self, upstream: UpstreamAttempt, model: CatalogModel) -> None:
        """An attempt has its slot: from now on it waits for its first token."""
        upstream.on_first_token = self._router.began(model, self._uncached(model), now_ns())
        timeout_s = self._play.first_token_timeout_s
        if timeout_s is None:
            timeout_s = self._router.first_token_timeout(model, self._uncached(model), now_ns())
        upstream.wait_for_first_token(timeout_s)

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
        self._router.withdraw(self._model)
        if isinstance(error, CallRefusedError) and not upstream.started_ns and why_of(error) != "queue":
            # A play refuses to send the call to this model, which another may well take.
            self._left += 1
            self._add_fallback(upstream, self._model, "unfit", time_ns)
            return self._next("fallback" if any(one.started_ns for one in upstream.attempts.made) else "first")
        self._error = error
        upstream = upstream.attempts.failed or upstream
        why = self._failed(upstream, error)
        is_over = self._deadline_ns is not None and time_ns >= self._deadline_ns
        if why is None or is_over or (upstream.was_claimed and upstream.state.stream):
            return None
        model = self._model
        following = self._next("fallback")
        if following is not None:
            self._add_fallback(upstream, model, why, time_ns)
        return following

    def _add_fallback(self, upstream: UpstreamAttempt, model: CatalogModel, why: str, time_ns: int) -> None:
        state = upstream.state
        after_s = (time_ns - state.started_ns) / 1e9
        self.fallbacks += (Fallback(model=model.name, origin=state.origin, why=why, after_s=after_s),)

    def _failed(self, upstream: UpstreamAttempt, error: Exception) -> str | None:
        """Learn from an attempt that has failed. Returns why; None for a mistake in the call."""
        upstream.on_first_token(False)
        why = upstream.why if upstream.why is not None else why_of(error)
        if why is None or why == "deadline":
            return None
        # A full queue of ours, and a prompt that is too long, say nothing of the upstream.
        if why != "queue" and why != "too_long":  # noqa: PLR1714 - narrows the type
            self._warn(upstream, why)
            late_s = (now_ns() - upstream.started_ns) / 1e9 if upstream.is_late else None
            self._note(late_s=late_s, failure=why, rest_s=rest_after(why, error))
        return why

    def _note(self, **shown: Any) -> None:
        at, uncached = self._router.states[self._model.name].upstream, self._uncached(self._model)
        sighting = Sighting(model=at.model, origin=at.origin, task=self.query.kind, uncached_tokens=uncached, **shown)
        self._knowledge.note(sighting, now_ns())

    def call_to(self, upstream: UpstreamAttempt) -> Call:
        """Return the call as it goes to an upstream."""
        return self._call.replaced(body=upstream.body, upstream=upstream)

    def answered(self, upstream: UpstreamAttempt) -> CatalogModel:
        """Learn that the model has begun to answer; and that an attempt was late if its hedge was faster."""
        time_ns, self._error = now_ns(), None
        self._knowledge.note_read(self.query, self._model, self._own_facts, time_ns)
        if upstream.is_lost:
            self._note(late_s=(time_ns - upstream.started_ns) / 1e9)
        return self._model

    def _warn(self, upstream: UpstreamAttempt, why: Failure) -> None:
        """Log once what the models that answer instead would hide: a mistake in the catalog, perhaps."""
        attempts = upstream.state.attempts
        last = attempts[-1] if attempts else None
        if last is None or (why != "denied" and last.error != "ConnectError"):
            return
        what = "could not be connected to" if last.status_code is None else f"answered {last.status_code}"
        self._own.client._fastlane.pipeline.warn_once(
            f"The model {self._model.name!r} of the catalog {what} at {upstream.state.origin}. Check its "
            "model, base_url and api_key_env, and the server's certificate. Other models answer meanwhile."
        )


def _price(model: CatalogModel, usage: Usage) -> float | None:
    """Return what the answer cost, in the catalog's currency; None if its price or its tokens are not known."""
    if model.price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return model.price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)

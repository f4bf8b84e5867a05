"""The ways of one call, one after the other: which upstream is tried next, until when, and what is learned of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.compat.call_options import changed_options
from fastlane.compat.clients import http_client_of
from fastlane.errors import CallRefusedError
from fastlane.plays import Urgency
from fastlane.plays.routing.route_requests import asks_for_a_route
from fastlane.records.route import Fallback

from ..observation import Observation
from ._account import WayAccount
from ._failures import rest_after, why_of
from ._leg import Kind, Leg
from ._legs_made import client_for, options_at, upstreams_of
from ._told import answered, failed, watched

if TYPE_CHECKING:
    from fastlane.plays.routing._plan import RoutePlan
    from fastlane.plays.routing.catalog._models import CatalogModel

    from ..call import Call

# A second attempt goes elsewhere only where that is about as fast.
_AS_FAST = 1.5
_NO_MORE_S = 0.05


def journey_of(client: Any, observation: Observation, options: Any) -> Journey | None:
    """The journey of a call that may go several ways; None where it has but one."""
    shell = client._fastlane
    call = shell.call_of(client, observation, options)
    if call is None:
        return None
    plan = None
    if shell.pipeline.routes_calls and call.model is not None and asks_for_a_route(call.model):
        from fastlane.plays.routing._plan import RoutePlan

        plan = shell.pipeline.route(
            call.with_data(upstreams_of(client, call.endpoint)).replaced(
                facts=shell.facts_of(observation.origin),
                extra=frozenset(options.extra_json or ()),
            )
        ).get(RoutePlan)
        if plan is None:
            # A provider would answer that it has no such model.
            raise CallRefusedError(
                f"model={call.model!r} asks for a route, and the play failed to find one: see the log"
            )
    if plan is None and not shell.pipeline.hedges:
        return None
    return Journey(client, observation, options, call, plan)


class Journey:
    """One call on its ways. Sans-IO."""

    def __init__(self, client: Any, observation: Observation, options: Any, call: Call, plan: RoutePlan | None) -> None:
        self._client = client
        self._first = observation
        self._options = options
        self._call: Call = call
        self._plan = plan
        self._steps: list[CatalogModel] = list(plan.steps) if plan is not None else []
        self._left = 1 + plan.fallbacks if plan is not None else 1
        self._waited = False
        self._failed: Leg | None = None
        """The way whose error is the application's."""
        self.legs: list[Leg] = []
        self.account = WayAccount(plan, observation.origin)
        observation.goes_several_ways()
        self._deadline_ns = self._deadline(observation.started_ns)
        level = None if plan is None else plan.route.urgency
        if level is not None:
            observation.urgency = level
            pipeline = observation.pipeline
            if level != "interactive" and not any(isinstance(play, Urgency) for play in pipeline.plays):
                pipeline.warn_once(
                    f'Route(urgency="{level}") does not change when a call is sent: this client has no Urgency play. '
                    "Add Urgency() to its plays"
                )

    def _deadline(self, started_ns: int) -> int | None:
        plan = self._plan
        if plan is None:
            return None
        seconds: Any = plan.deadline_s
        if seconds is None:
            seconds = self._options.timeout
            if isinstance(seconds, openai.NotGiven):
                seconds = self._client.timeout
            seconds = getattr(seconds, "read", seconds)
        return None if not isinstance(seconds, int | float) else started_ns + int(seconds * 1e9)

    @property
    def http(self) -> Any:
        """The application's own HTTP client."""
        return http_client_of(self._client)

    # The ways

    def first(self) -> Leg:
        """The first way. Raises CallRefusedError where none can be gone."""
        if self._plan is not None:
            leg = self._next("first")
        elif (leg := self._leg(None, "first")) is not None:
            self.legs.append(leg)
        if leg is None:
            raise CallRefusedError("no model of the catalog can be called any more: the keys are gone")
        return leg

    def _has_others(self, beside: CatalogModel | None) -> bool:
        """Whether another upstream than this one is left for the call."""
        return self._left > 0 and any(model is not beside for model in self._steps)

    def _next(self, kind: Kind) -> Leg | None:
        """The next way that can be gone; None where there is none."""
        assert self._plan is not None
        withdraw = self._plan.knowledge.memory.withdraw
        refused: CallRefusedError | None = None
        while self._left > 0 and (model := self._take()) is not None:
            leg = None
            try:
                self._left -= 1
                leg = self._leg(model, kind)
            except CallRefusedError as error:
                # A play refuses to send the call to this one, which another may well take.
                refused = error
                self.account.passed_over(model, self._call.issued_ns, now_ns())
            finally:
                if leg is None:
                    withdraw(model)
            if leg is not None:
                leg.over = partial(withdraw, model)  # until it begins: it may leave the queue without that
                self.legs.append(leg)
                return leg
            self._left += 1
        if refused is not None and not self.legs:
            raise refused
        return None

    def _take(self) -> CatalogModel | None:
        """The next model of the decision, of those that do not rest if there are any."""
        plan = self._plan
        assert plan is not None
        # The decision has admitted the call to its first one.
        chosen = plan.decision.ranked[0].name
        for at, model in enumerate(self._steps):
            if model.name == chosen or plan.knowledge.memory.admit(model, now_ns()):
                return self._steps.pop(at)
        # One that rests is better than an error.
        return self._steps.pop(0) if self._steps else None

    def _leg(self, model: CatalogModel | None, kind: Kind, *, avoid: str | None = None) -> Leg | None:
        plan = self._plan
        client = client_for(self._client, model)
        if client is None:
            return None  # its key has gone since the decision
        observation = before = self._first
        shell = client._fastlane
        if self.legs:
            observation = Observation(
                before.pipeline,
                method=before.method,
                endpoint=before.endpoint,
                origin=shell.origin(client.base_url),
                stream=before.stream,
                transport=shell.transport,
                beside=before,
            )
        else:
            observation.origin = shell.origin(client.base_url)
            observation.transport = shell.transport
        leg = Leg(
            client,
            observation,
            kind=kind,
            model=model,
            streams=plan is not None and plan.streams,
            deadline_ns=self._deadline_ns,
            avoid=avoid,
        )
        observation.account = self.account
        if model is not None and model.facts is not None and plan is not None:
            leg.facts = plan.knowledge.facts_of(model, shell.facts_of(observation.origin))
        leg.may_leave = self._has_others(model)
        options, made = self._options, None
        if model is not None and plan is not None:
            options, made = options_at(self._client, client, options, self._call, model, plan)
            if leg.may_leave:
                # Another upstream is the better second try.
                options = changed_options(options, {"max_retries": 0})
            leg.doubtful = made.doubtful
        leg.options = shell.plan(client, observation, options)
        if made is not None:
            observation.changes = (*made.changes, *observation.changes)
        if not self.account.hedges:
            self.account.planned(leg.hedge)
        return leg

    def begin(self, leg: Leg) -> None:
        """A way is begun: as soon as it has its place."""
        leg.when_placed(partial(self._begin, leg))

    def _begin(self, leg: Leg) -> None:
        timeout_s = None
        plan, model = self._plan, leg.model
        if plan is not None and model is not None:
            timeout_s = watched(plan, leg, model)
        leg.begin(timeout_s if leg.may_leave else None)

    # A second way at once

    def second(self, first: Leg) -> Leg | None:
        """The way of a second attempt beside one that is late; None where there is none."""
        model, avoid = first.model, first.connection
        other = self._as_fast_as(model) if model is not None else None
        if other is not None:
            model, avoid = other, None
        leg = self._leg(model, "hedge", avoid=avoid)
        if leg is None:
            return None
        leg.hedge = None  # it has no second chance of its own
        urgent = leg.observation.urgent
        if urgent is not None and not urgent.try_acquire(leg.client, leg.options):
            # A second attempt that had to wait would be the later one.
            self.account.why_not = "no place was free"
            leg.observation.set_aside()
            leg.let_go()
            return None
        return leg

    def hedge_begins(self, first: Leg, leg: Leg) -> None:
        """The second attempt is about to be sent; the call is not over."""
        self.legs.append(leg)
        plan, model = self._plan, leg.model
        if plan is not None and model is not None:
            if model in self._steps:
                self._steps.remove(model)
            watched(plan, leg, model)
            if first.may_leave and not self._has_others(None):
                # These two are all that is left.
                first.may_leave = leg.may_leave = False
                first.patience.until_ns = first.deadline_ns
        leg.begin(None)
        # Both together are waited for as long as the first alone.
        leg.patience.until_ns = first.patience.until_ns
        account = self.account
        account.hedged = True
        account.hedge_origin, account.hedge_model = leg.observation.origin, leg.observation.model

    def _as_fast_as(self, model: CatalogModel) -> CatalogModel | None:
        """Return a model of the next ones that is about as fast and whose breakers are closed, or None."""
        plan = self._plan
        assert plan is not None
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

    # What comes of a way

    def after(self, leg: Leg, error: BaseException) -> Leg | None:
        """The way that is gone next; None where the error is the application's."""
        following = self._after(leg, error)
        if following is None:
            self._failed = leg
        return following

    def failed_beside(self, leg: Leg, error: BaseException) -> None:
        """The second attempt has failed while the first one went on."""
        leg.ended()
        why = why_of(error)
        if self._plan is not None and leg.model is not None and why is not None and why != "queue":
            failed(self._plan, leg, why, rest_after(why, error), now_ns())

    def _after(self, leg: Leg, error: BaseException) -> Leg | None:
        leg.ended()
        plan = self._plan
        why = why_of(error)
        if plan is None or leg.model is None or why is None:
            return None
        time_ns = now_ns()
        rest_s = None
        if why != "queue":
            rest_s = rest_after(why, error)
            failed(plan, leg, why, rest_s, time_ns)
        if (leg.was_claimed and leg.observation.stream) or self._is_over(time_ns):
            return None
        following = None
        if why == "rate_limit" and rest_s is not None and not self._waited and self._is_worth(rest_s, leg.model):
            # It asks for a shorter wait than the next one would take longer.
            self._waited = True
            following = self._leg(leg.model, "fallback")
            if following is not None:
                self.legs.append(following)
                following.wait_s = rest_s
        else:
            following = self._next("fallback")
        if following is not None:
            self.account.fallbacks += (
                Fallback(
                    model=leg.model.name,
                    origin=leg.observation.origin,
                    why=why,
                    after_s=(time_ns - leg.observation.started_ns) / 1e9,
                ),
            )
        return following

    def _is_over(self, time_ns: int) -> bool:
        return self._deadline_ns is not None and time_ns >= self._deadline_ns

    def _is_worth(self, rest_s: float, model: CatalogModel) -> bool:
        plan = self._plan
        assert plan is not None
        if not self._steps:
            return False  # openai's own loop has waited already
        expected = {one.name: one.prediction for one in plan.decision.ranked}
        this, that = expected.get(model.name), expected.get(self._steps[0].name)
        return this is not None and that is not None and rest_s <= that.total_s - this.total_s

    def ended(self, winner: Leg | None) -> Observation:
        """The call has its answer, or its error: the observation that makes its record.

        `winner` is the way that brought the answer; None where none did.
        """
        legs, last = self.legs, winner if winner is not None else self._failed
        if last is None:
            if not legs:  # nothing was even planned
                return self._first
            last = legs[-1]
        observation = last.observation
        for leg in legs:
            if leg is not last:
                observation.before += leg.observation.attempts
                leg.observation.set_aside()
        observation.before.sort(key=lambda attempt: attempt.number)
        if winner is not None:
            answered(self._plan, self._client, self.legs, winner, self.account)
        for leg in legs:
            leg.let_go()
        return observation

"""What routing is told of the ways of a call while it goes them, and what the record says of them in the end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.knowledge.prediction._sighting import Failure, Sighting
from fastlane.knowledge.prediction._upstream import Upstream

from ..pipeline import log

if TYPE_CHECKING:
    from fastlane.plays.routing._plan import RoutePlan
    from fastlane.plays.routing.catalog._models import CatalogModel

    from ._account import WayAccount
    from ._leg import Leg


_warned: set[tuple[str, str, str]] = set()
_MOST_WARNED = 1_000


def _upstream(plan: RoutePlan, model: CatalogModel) -> Upstream:
    return Upstream(model.model, plan.catalog.origin_of(model))


def _uncached(plan: RoutePlan, model: CatalogModel) -> float:
    question = plan.question
    return max(0.0, question.input_tokens - question.cached_tokens.get(_upstream(plan, model), 0.0))


def watched(plan: RoutePlan, leg: Leg, model: CatalogModel) -> float:
    """A way begins: have it known for how long it waits. Seconds without a first token after which it is left."""
    memory, uncached, time_ns = plan.knowledge.memory, _uncached(plan, model), now_ns()
    leg.over = partial(memory.over, memory.began(model, uncached, time_ns))
    if plan.first_token_timeout_s is not None:
        return plan.first_token_timeout_s
    return memory.first_token_timeout(model, uncached, time_ns)


def failed(plan: RoutePlan, leg: Leg, why: Failure, rest_s: float | None, time_ns: int) -> None:
    """A way has failed."""
    model = leg.model
    assert model is not None
    if why == "too_long":
        return  # which says nothing of the upstream
    _warn(plan, leg, model, why)
    upstream = _upstream(plan, model)
    plan.knowledge.note(
        Sighting(
            model=upstream.model,
            origin=upstream.origin,
            task=plan.question.task,
            uncached_tokens=_uncached(plan, model),
            late_s=(time_ns - leg.started_ns) / 1e9 if leg.is_late else None,
            failure=why,
            rest_s=rest_s,
        ),
        time_ns,
    )


def _warn(plan: RoutePlan, leg: Leg, model: CatalogModel, why: Failure) -> None:
    """Say once what would stay hidden behind the models that answer instead: a mistake in the catalog, perhaps."""
    attempts = leg.observation.attempts
    last = attempts[-1] if attempts else None
    if last is None or (why != "denied" and last.error != "ConnectError"):
        return
    what = "could not be connected to" if last.status_code is None else f"answered {last.status_code}"
    place = plan.catalog.origin_of(model) or leg.observation.origin
    if (model.name, place, what) in _warned or len(_warned) >= _MOST_WARNED:
        return
    _warned.add((model.name, place, what))
    log.warning(
        "the model %r of the catalog %s at %s: its model, base_url, api_key_env and the server's certificate are to be "
        "looked at; other models answer meanwhile (said once)",
        model.name,
        what,
        place,
    )


def answered(plan: RoutePlan | None, client: Any, legs: Sequence[Leg], winner: Leg, account: WayAccount) -> None:
    """A way has brought the answer; those that it was faster than have shown how slow they are."""
    account.answered_by = winner.model
    time_ns = now_ns()
    if plan is not None and winner.model is not None:
        facts = plan.knowledge.facts_of(winner.model, client._fastlane.facts_of(winner.observation.origin))
        plan.knowledge.read(winner.observation.call_id, winner.model, facts, time_ns)
    if account.hedged:
        account.won = winner.kind == "hedge"
    for loser in [leg for leg in legs if leg.is_lost]:
        account.loser = loser.model
        hedge = legs[0].hedge if loser.kind == "hedge" else loser.hedge
        sent = any(one.phases.send_started_ns is not None for one in loser.observation.attempts)
        if hedge is not None:
            account.extra_input_tokens = round(hedge.input_tokens) if sent else 0
            account.extra_output_tokens = 0
        if plan is not None and loser.model is not None:
            upstream = _upstream(plan, loser.model)
            plan.knowledge.note(
                Sighting(
                    model=upstream.model,
                    origin=upstream.origin,
                    task=plan.question.task,
                    uncached_tokens=_uncached(plan, loser.model),
                    late_s=(time_ns - loser.started_ns) / 1e9,
                ),
                time_ns,
            )

"""What the record of a call says of the ways that it has gone: which model was chosen, and its second chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlane.records.route import Fallback, HedgingRecord, RoutingCandidate, RoutingRecord

if TYPE_CHECKING:
    from fastlane.plays.hedging._plan import HedgePlan
    from fastlane.plays.routing._decision import Candidate
    from fastlane.plays.routing._plan import RoutePlan
    from fastlane.plays.routing.catalog._models import Catalog, CatalogModel

    from ..observation import Observation


class WayAccount:
    """The account of one call's ways. It outlives the call, and holds nothing of the prompt."""

    __slots__ = (
        "_catalog", "_decision", "_own_origin", "_question", "_route", "answered_by", "delay_s", "extra_input_tokens",
        "extra_output_tokens", "fallbacks", "first", "hedge_model", "hedge_origin", "hedged", "hedges", "loser",
        "why_not", "won",
    )  # fmt: skip

    def __init__(self, plan: RoutePlan | None, own_origin: str) -> None:
        self._route = plan.route if plan is not None else None
        self._question = plan.question if plan is not None else None
        self._decision = plan.decision if plan is not None else None
        self._catalog = plan.catalog if plan is not None else None
        self._own_origin = own_origin
        self.first: CatalogModel | None = plan.steps[0] if plan is not None else None
        self.answered_by: CatalogModel | None = None
        self.fallbacks: tuple[Fallback, ...] = ()
        self.hedges = False
        """Whether the `Hedging` play had a say in the call."""
        self.delay_s: float | None = None
        self.hedged = False
        self.won: bool | None = None
        self.why_not: str | None = None
        self.hedge_origin: str | None = None
        self.hedge_model: str | None = None
        self.loser: CatalogModel | None = None
        """The catalog's model that lost, for its price."""
        self.extra_input_tokens: int | None = None
        self.extra_output_tokens: int | None = None

    def planned(self, hedge: HedgePlan | None) -> None:
        """Take down what was planned of a second attempt."""
        if hedge is not None:
            self.hedges = True
            self.delay_s, self.why_not = hedge.delay_s, hedge.why_not

    def passed_over(self, model: CatalogModel, started_ns: int, time_ns: int) -> None:
        """A play refused to send the call to this one."""
        origin = self._catalog.origin_of(model) if self._catalog is not None else ""
        after_s = (time_ns - started_ns) / 1e9
        self.fallbacks += (Fallback(model=model.name, origin=origin or self._own_origin, why="unfit", after_s=after_s),)

    def no_hedge(self, why_not: str) -> None:
        """There will be no second attempt, whatever was planned."""
        self.delay_s, self.why_not = None, why_not

    def routing(self, call: Observation) -> RoutingRecord | None:
        """The part of the record on the choice of the model."""
        route, question, decision, catalog = self._route, self._question, self._decision, self._catalog
        if route is None or question is None or decision is None or catalog is None or self.first is None:
            return None
        assert decision.reason is not None
        first = decision.ranked[0].prediction
        answered = call.outcome not in ("failed", "cancelled")
        by = self.answered_by if answered else None
        ended_ns = call.answer.token_ns[-1] if len(call.answer.token_ns) else call.ended_ns
        from fastlane.plays.routing.section import RoutingSection

        return RoutingSection(
            asked=str(route),
            task=question.task,
            quality_bar=question.quality_bar,
            pass_rate=question.pass_rate,
            quantile=question.quantile,
            reason=decision.reason,
            candidates=tuple(
                [self._candidate(one, catalog) for one in (*decision.ranked, *decision.rejected)],
            ),
            chosen=decision.ranked[0].name,
            model=by.name if by is not None else None,
            provider=by.provider if by is not None else None,
            predicted_s=first.total_s if first is not None else None,
            predicted_first_token_s=(
                first.connect_s + first.upload_s + first.first_token_s if first is not None else None
            ),
            actual_s=(ended_ns - call.started_ns) / 1e9 if answered else None,
            fallbacks=self.fallbacks,
            price=_price(by, call) if by is not None else None,
            body_bytes=question.body_bytes,
            input_tokens=round(question.input_tokens),
        )

    def _candidate(self, one: Candidate, catalog: Catalog) -> RoutingCandidate:
        model, prediction, question = catalog.named(one.name), one.prediction, self._question
        assert question is not None
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
            cached_tokens=round(question.cached_tokens.get(one.upstream, 0.0)),
            why_not=one.why_not,
        )

    def hedging(self, call: Observation) -> HedgingRecord | None:
        """The part of the record on the second attempt."""
        if not self.hedges:
            return None
        from fastlane.plays.hedging.section import HedgingSection

        return HedgingSection(
            delay_s=self.delay_s,
            hedged=self.hedged,
            won=self.won,
            why_not=self.why_not,
            origin=self.hedge_origin,
            model=self.hedge_model,
            extra_input_tokens=self.extra_input_tokens,
            extra_output_tokens=self.extra_output_tokens,
            extra_price=self._extra_price(),
        )

    def _extra_price(self) -> float | None:
        price = self.loser.price if self.loser is not None else None
        if price is None or self.extra_input_tokens is None:
            return None
        return (self.extra_input_tokens * price.input + (self.extra_output_tokens or 0) * price.output) / 1e6


def _price(model: CatalogModel, call: Observation) -> float | None:
    """What the answer cost, in the catalog's currency; None where its price or its tokens are not known."""
    price, usage = model.price, call.usage
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = usage.cached_tokens or 0
    cached_price = price.cached_input if price.cached_input is not None else price.input
    tokens = (usage.input_tokens - cached) * price.input + cached * cached_price + usage.output_tokens * price.output
    return tokens / 1e6

"""The attributes that tell what the plays did with a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from . import _names as names

if TYPE_CHECKING:
    from ..records.output import BoundedOutputRecord
    from ..records.prompt import CurationRecord, PromptCacheRecord
    from ..records.route import HedgingRecord, RoutingRecord
    from ..records.urgency import UrgencyRecord

_CANDIDATES_TOLD = 20


class Played(Protocol):
    """What the plays have to say of a call: its record, or what is left of it where nobody has asked for a record."""

    @property
    def prompt_cache(self) -> PromptCacheRecord | None:
        """What was read from the provider's cache."""

    @property
    def curation(self) -> CurationRecord | None:
        """What was cut."""

    @property
    def output(self) -> BoundedOutputRecord | None:
        """How the answer was bounded."""

    @property
    def routing(self) -> RoutingRecord | None:
        """Which model was chosen."""

    @property
    def hedging(self) -> HedgingRecord | None:
        """What came of a second attempt."""

    @property
    def urgency(self) -> UrgencyRecord | None:
        """How urgent it was, its tier, and its place."""


def add_plays(told: dict[str, Any], call: Played) -> None:
    """What the plays did."""
    if call.prompt_cache is not None:
        _cache(call.prompt_cache, told)
    if call.curation is not None:
        told[names.CURATED_TOKENS] = call.curation.tokens_before - call.curation.tokens_after
    if call.output is not None:
        _output(call.output, told)
    if call.routing is not None:
        _route(call.routing, told)
    if call.hedging is not None:
        _hedge(call.hedging, told)
    if call.urgency is not None:
        _urgency(call.urgency, told)


def add_optimizations(told: dict[str, Any], call: Played, http_version: str | None, form: str, *, reused: bool) -> None:
    """Which of fastlane's means came to bear on a call."""
    did = []
    if http_version == "HTTP/2":
        did.append("http2")
    if reused:
        did.append("warm_connection")
    if form != "json":
        did += form.removeprefix("json+").split("+")
    if call.prompt_cache is not None and call.prompt_cache.cached_tokens:
        did.append("prompt_cache")
    if call.curation is not None and call.curation.cuts:
        did.append("curation")
    output = call.output
    if output is not None:
        if output.ceiling_tokens is not None:
            did.append("bounded_output")
        if output.stop_reason is not None:
            did.append("early_stop")
    if call.routing is not None:
        did.append("routing")
    if call.hedging is not None and call.hedging.hedged:
        did.append("hedge")
    if did:
        told[names.OPTIMIZATIONS] = tuple(did)


def _cache(cache: PromptCacheRecord, told: dict[str, Any]) -> None:
    told[names.PREFIX_HASH] = cache.family
    told[names.PREFIX_TOKENS] = cache.reusable_tokens
    if cache.expected_tokens is not None:
        told[names.EXPECTED_READ] = cache.expected_tokens
    ratio = cache.hit_ratio
    if ratio is not None:
        told[names.CACHE_HIT_RATIO] = ratio
    if cache.drift is not None:
        told[names.CACHE_MISMATCH] = cache.drift.kind
        told[names.CACHE_LOST] = cache.drift.tokens_lost


def _output(output: BoundedOutputRecord, told: dict[str, Any]) -> None:
    if output.verdict is not None:
        told[names.OUTPUT_VERDICT] = output.verdict
        told[names.OUTPUT_VALID] = output.verdict == "valid"
        told[names.OUTPUT_REPAIRS] = len(output.rejected)
    if output.ceiling_tokens is not None:
        told[names.OUTPUT_CEILING] = output.ceiling_tokens
    if output.stop_reason is not None:
        told[names.OUTPUT_STOP] = output.stop_reason
    if output.tokens_not_generated is not None:
        told[names.OUTPUT_NOT_GENERATED] = output.tokens_not_generated


def _route(routing: RoutingRecord, told: dict[str, Any]) -> None:
    told[names.ROUTE_REQUESTED] = routing.asked
    told[names.ROUTE_MODEL] = routing.chosen
    told[names.ROUTE_REASON] = routing.reason
    told[names.ROUTE_CANDIDATE_COUNT] = len(routing.candidates)
    told[names.ROUTE_CANDIDATES] = tuple(
        [
            f"{one.model}: {one.why_not}" if one.predicted_s is None else f"{one.model}: {one.predicted_s:.3f} s"
            for one in routing.candidates[:_CANDIDATES_TOLD]
        ]
    )
    found = (
        (names.ROUTE_TASK, routing.task),
        (names.ROUTE_QUALITY_BAR, routing.quality_bar),
        (names.ROUTE_PREDICTED, routing.predicted_s),
        (names.ROUTE_PREDICTED_TTFT, routing.predicted_first_token_s),
        (names.ROUTE_PRICE, routing.price),
    )
    told.update({name: value for name, value in found if value is not None})
    if routing.fallbacks:
        told[names.ROUTE_FALLBACKS] = tuple([f"{left.model}: {left.why}" for left in routing.fallbacks])


def _hedge(hedging: HedgingRecord, told: dict[str, Any]) -> None:
    told[names.HEDGE_SENT] = hedging.hedged
    found = (
        (names.HEDGE_DELAY, hedging.delay_s),
        (names.HEDGE_WON, hedging.won),
        (names.HEDGE_EXTRA_TOKENS, hedging.extra_output_tokens),
    )
    told.update({name: value for name, value in found if value is not None})


def _urgency(urgency: UrgencyRecord, told: dict[str, Any]) -> None:
    told[names.URGENCY] = urgency.urgency
    if urgency.asked_tier is not None:
        told[names.TIER_ASKED] = urgency.asked_tier
        if urgency.served_tier is not None:
            told[names.TIER_DOWNGRADED] = urgency.downgraded
    if urgency.served_tier is not None:
        told[names.TIER_SERVED] = urgency.served_tier
    if urgency.full_tiers:
        told[names.TIERS_FULL] = urgency.full_tiers
    if urgency.shared_with is not None:
        told[names.SHARED] = True
    if urgency.sharers:
        told[names.SHARERS] = urgency.sharers
    admission = urgency.admission
    if admission is not None:
        told[names.ADMISSION_WAIT] = admission.waited_s
        told[names.ADMISSION_AHEAD] = admission.ahead
        if admission.concurrency is not None:
            told[names.ADMISSION_CONCURRENCY] = admission.concurrency
        if admission.waited_for is not None:
            told[names.ADMISSION_WAIT_REASON] = admission.waited_for

"""On which calls each play did something, and what came of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._groups import Group, group_of
from ._ledger import Ledger, ledger_of
from ._text import seconds_shown

if TYPE_CHECKING:
    from ..engine.call import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one play did."""

    play: str
    """The name of its class."""
    on: int
    """Calls of clients that have it."""
    acted: int | None
    """Of these, the calls on which it did something; None for a play of the application's own."""
    effect: str | None
    """What came of it, by the records of these calls; None where there are none."""
    group: Group
    """Where the time of the calls went on which it did something. That they differ from others says nothing of the play
    alone: what it is worth is for an A/B comparison to say."""

    def to_dict(self) -> dict[str, Any]:
        """The play as plain JSON data."""
        return {
            "play": self.play,
            "on": self.on,
            "acted": self.acted,
            "effect": self.effect,
            "calls": self.group.to_dict(),
        }


def plays_of(records: Sequence[CallRecord], opening_s: Mapping[str, float]) -> tuple[Played, ...]:
    """What each play did that is on in any of these calls."""
    on: dict[str, list[CallRecord]] = {}
    for record in records:
        for name in {fingerprint.partition("(")[0] for fingerprint in record.plays}:
            on.setdefault(name, []).append(record)
    known = [name for name in _ACTS if name in on]
    return tuple(_played(name, on[name], opening_s) for name in (*known, *sorted(on.keys() - set(known))))


def _played(name: str, on: Sequence[CallRecord], opening_s: Mapping[str, float]) -> Played:
    acts = _ACTS.get(name)
    acted = [record for record in on if acts is not None and acts[0](record)]
    return Played(
        play=name,
        on=len(on),
        acted=len(acted) if acts is not None else None,
        effect=acts[1](acted, ledger_of(acted, opening_s)) if acts is not None and acted else None,
        group=group_of(acted),
    )


# Connection


def _reused(record: CallRecord) -> bool:
    return record.transport == "fastlane" and record.connection_reused is True


def _connections(_records: Sequence[CallRecord], ledger: Ledger) -> str:
    if ledger.connections_saved_s is None:
        return "none of the client's calls opened a connection to compare with"
    return f"{seconds_shown(ledger.connections_saved_s)} of opening connections (estimated)"


# Encoding


def _encoded(record: CallRecord) -> bool:
    return record.encoding is not None and record.encoding.form != "json"


def _bytes(records: Sequence[CallRecord], ledger: Ledger) -> str:
    plain = sum(record.encoding.plain_bytes for record in records if record.encoding is not None)
    sent = sum(record.encoding.sent_bytes for record in records if record.encoding is not None)
    sooner = ledger.total("encoding_s")
    said = f"{plain:,} B of JSON in {sent:,} B"
    return said if sooner is None else f"{said}, {seconds_shown(sooner.value)} sooner (predicted)"


# PromptCache


def _hit(record: CallRecord) -> bool:
    return not record.usage.estimated and (record.usage.cached_tokens or 0) > 0


def _tokens(_records: Sequence[CallRecord], ledger: Ledger) -> str:
    read = ledger.total("cache_read_tokens")
    return f"{read.value if read is not None else 0:,} of {ledger.prompt_tokens_said:,} prompt tokens read (reported)"


# Curation


def _cut(record: CallRecord) -> bool:
    return record.curation is not None and record.curation.tokens_after < record.curation.tokens_before


def _cuts(_records: Sequence[CallRecord], ledger: Ledger) -> str:
    cut = ledger.total("curation_tokens")
    return f"{cut.value if cut is not None else 0:,} tokens not sent (estimated)"


# BoundedOutput


def _bounded(record: CallRecord) -> bool:
    output = record.output
    return output is not None and bool(
        output.ceiling_tokens or output.stop_reason or output.rejected or output.compact_saved_tokens
    )


def _outputs(records: Sequence[CallRecord], ledger: Ledger) -> str:
    outputs = [record.output for record in records if record.output is not None]
    counts = {
        "given a ceiling": sum(output.ceiling_tokens is not None for output in outputs),
        "stopped": sum(output.stop_reason is not None for output in outputs),
        "asked again": sum(bool(output.rejected) for output in outputs),
    }
    said = [f"{count:,} {what}" for what, count in counts.items() if count]
    for name, what in (
        ("tokens_not_generated", "tokens not generated"),
        ("short_names_tokens", "saved by short names"),
    ):
        total = ledger.total(name)
        if total is not None and total.value:
            said.append(f"{total.value:,} {what} (estimated)")
    return ", ".join(said)


# Routing


def _routed(record: CallRecord) -> bool:
    return record.routing is not None


def _routes(records: Sequence[CallRecord], _ledger: Ledger) -> str:
    routes = [record.routing for record in records if record.routing is not None]
    told = [(one.actual_s, one.predicted_s) for one in routes if one.actual_s is not None]
    compared = [(actual, predicted) for actual, predicted in told if predicted is not None]
    within = sum(actual <= predicted for actual, predicted in compared)
    left = sum(len(one.fallbacks) for one in routes)
    models = {one.model for one in routes if one.model is not None}
    said = [f"{len(models):,} model{'' if len(models) == 1 else 's'} answered"]
    if left:
        said.append(f"{left:,} left for another")
    if compared:
        said.append(f"{within:,} of {len(compared):,} within the predicted time")
    return ", ".join(said)


# Hedging


def _hedged(record: CallRecord) -> bool:
    return record.hedging is not None and record.hedging.hedged


def _hedges(_records: Sequence[CallRecord], ledger: Ledger) -> str:
    said = f"{ledger.hedges_won:,} won, {ledger.hedges_lost:,} lost"
    spent = ledger.total("hedge_tokens")
    return said if spent is None else f"{said}, {spent.value:,} tokens spent on it (estimated)"


_Acts = tuple[Callable[["CallRecord"], bool], Callable[[Sequence["CallRecord"], Ledger], str]]

_ACTS: dict[str, _Acts] = {
    "Routing": (_routed, _routes),
    "Hedging": (_hedged, _hedges),
    "Connection": (_reused, _connections),
    "Encoding": (_encoded, _bytes),
    "PromptCache": (_hit, _tokens),
    "Curation": (_cut, _cuts),
    "BoundedOutput": (_bounded, _outputs),
}

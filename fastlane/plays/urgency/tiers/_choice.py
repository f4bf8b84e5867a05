"""Which tier a call asks for by how urgent it is, and where it goes when that is full. Pure: facts in, plan out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane.engine.call import Call
from fastlane.providers.output_facts import for_model
from fastlane.records.urgency import Level

from ._plan import TierPlan

if TYPE_CHECKING:
    from fastlane.providers.facts import Tiers

_USUAL_FIELD = "service_tier"
# Which time-out the project itself asks for is not known, so that nothing can be slower than that.
_ANY = frozenset({"auto"})


def tier_plan(call: Call, level: Level, wanted: Mapping[str, str | None] | None) -> TierPlan | None:
    """The tier of a call; None where nothing is known of the provider's tiers, and the call names none.

    `wanted` are the application's tiers by level.
    """
    facts = call.facts
    tiers = None if facts is None else facts.tiers
    field = tier_field(tiers, wanted, level)
    if field is None:
        return None
    if field in call.body:
        given = call.body[field]
        # The caller's own, None included, is neither changed nor left for another, and is looked at all the same.
        return _plan(tiers, field, given if isinstance(given, str) else None, None)
    asked = _chosen(call, level, tiers, wanted)
    standard = _value(tiers.standard) if tiers is not None else None
    if asked == standard or f"{field}={asked}" in call.refused:
        asked = None
    return _plan(tiers, field, asked, asked)


def asking(call: Call, plan: TierPlan) -> Call:
    """Return the call with the tier in its body that the plan adds, and with the time that an answer may take there."""
    if plan.added is None:
        return call if plan.timeout_s is None else call.replaced(timeout_s=plan.timeout_s)
    return call.replaced(
        body={**call.body, plan.field: plan.added},
        changes=(*call.changes, f"Urgency asked for the tier {plan.added!r}"),
        optional=(*call.optional, plan.refusal),
        timeout_s=plan.timeout_s,
    )


def is_downgrade(plan: TierPlan, asked: str | None, served: str | None) -> bool:
    """Whether `served` is slower than `asked`, as far as anybody knows."""
    if asked is None or served is None or asked in _ANY:
        return False
    ranks = {name: rank for rank, names in enumerate(plan.ranks) for name in names}
    return asked in ranks and served in ranks and ranks[served] < ranks[asked]


def tier_field(tiers: Tiers | None, wanted: Mapping[str, str | None] | None, level: Level) -> str | None:
    """The body's field that asks for a tier; None where the provider has none."""
    if tiers is None or tiers.field is None:
        # Nobody has looked: only what the application asks for by itself.
        return _USUAL_FIELD if wanted is not None and wanted.get(level) is not None else None
    return tiers.field.value


def _chosen(call: Call, level: Level, tiers: Tiers | None, wanted: Mapping[str, str | None] | None) -> str | None:
    if wanted is not None and level in wanted:
        asked = wanted[level]
        values = _value(tiers.values) if tiers is not None else None
        return asked if values is None or asked in values else None
    if tiers is None or level == "interactive":
        return None
    endpoints = _value(tiers.endpoints)
    if endpoints is not None and call.endpoint not in endpoints:
        return None
    return for_model(tiers.patient, call.model)


def _plan(tiers: Tiers | None, field: str, asked: str | None, added: str | None) -> TierPlan:
    if tiers is None:
        return TierPlan(field=field, asked=asked, added=added)
    ranks = _value(tiers.order) or ()
    standard, values = _value(tiers.standard), _value(tiers.values) or ()
    names = [name for same in ranks for name in same]
    # Only from a slower tier to the usual one: where a faster one is full, the usual one is fuller.
    is_slower = added in names and standard in names and names.index(added) < names.index(standard)
    status = _value(tiers.full_status)
    path = _value(tiers.answer_path)
    fact = None if asked is None else tiers.timeout_s.get(asked)
    return TierPlan(
        field=field,
        asked=asked,
        added=added,
        falls=is_slower and status is not None,
        following=standard if standard in values else None,
        full_status=status,
        full_codes=frozenset(_value(tiers.full_codes) or ()),
        ranks=ranks,
        answer_path=() if path is None or path == _USUAL_FIELD else tuple(path.split(".")),
        answer_header=_value(tiers.answer_header),
        timeout_s=None if fact is None else fact.value,
    )


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value

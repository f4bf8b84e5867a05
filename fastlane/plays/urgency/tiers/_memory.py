"""What an `Urgency` play remembers of upstreams: how many tokens their calls have, and whose pace is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.redis import shared
from fastlane.knowledge.table import Table
from fastlane.records.urgency import Level

from ..pacing._sharing import SharedPace
from ._choice import asking, tier_field, tier_plan
from ._plan import UrgencyPlan

if TYPE_CHECKING:
    from fastlane.engine.call import Call

    from ..admission import Gate
    from ..play import Urgency


class Memory:
    """Shared by all clients that a play is given to. Threads may share it."""

    def __init__(self, store: str | None = None) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self._redis = None if store is None else shared(store, setting="Urgency(store=...)")
        self._sizes: Table[tuple[str, str | None], CallSizes] = Table("sizes of calls", max_entries=256)
        self._plans: Table[tuple[Any, ...], tuple[Any, UrgencyPlan]] = Table("plans of urgency", max_entries=512)
        """What was planned for calls alike, and by which facts."""

    def planned(self, call: Call, level: Level, play: Urgency) -> Call:
        """The call with its plan: its place, and its tier."""
        facts = call.facts
        field = tier_field(None if facts is None else facts.tiers, play.tiers, level)
        given = () if field is None or field not in call.body else (call.body[field],)
        if given and not isinstance(given[0], str):
            given = (None,)
        key = (call.origin, call.model, call.endpoint, level, given, call.refused)
        known = self._plans.get(key)
        if known is None or known[0] is not facts:
            tier = tier_plan(call, level, play.tiers)
            plan = UrgencyPlan(
                urgency=level,
                tier=tier,
                admission=play.admission,
                max_wait_s=play.max_wait_s,
                single_flight=play.single_flight,
                on_downgrade=play.on_downgrade,
                memory=self,
            )
            known = facts, plan
            self._plans.put(key, known)
        return asking(call, known[1])

    def sizes(self, origin: str, model: str | None) -> CallSizes:
        """Those of an upstream's calls."""
        return self._sizes.fetch((origin, model), CallSizes)

    def share(self, gate: Gate, key: str) -> None:
        """Share the pace of a gate with other processes that have the same store."""
        if self._redis is not None and not gate.pacer.is_shared:
            gate.pacer.share(SharedPace(self._redis, key))

"""What an `Urgency` play remembers of upstreams: how many tokens their calls have, and whose pace is shared."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fastlane.knowledge.call_sizes import Sizes
from fastlane.records.urgency import Level

from ._choice import asking, tier_field, tier_plan
from ._plan import UrgencyPlan

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.plays import Urgency

_MOST_UPSTREAMS = 256
_MOST_PLANS = 512


class Memory:
    """Shared by all clients that a play is given to.

    Nothing is locked: what two threads learn at the same moment may count once.
    """

    def __init__(self, store: Any = None) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self._store = store
        if isinstance(store, str):
            from fastlane.knowledge.stores._store import store_of

            self._store = store_of(store, namespace="fastlane:urgency")
        self._sizes: OrderedDict[tuple[str, str | None], Sizes] = OrderedDict()
        self._plans: dict[tuple[Any, ...], tuple[Any, UrgencyPlan]] = {}
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
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = known = facts, plan
        return asking(call, known[1])

    def sizes(self, origin: str, model: str | None) -> Sizes:
        """Those of an upstream's calls."""
        key = (origin, model)
        sizes = self._sizes.get(key)
        if sizes is None:
            sizes = self._sizes.setdefault(key, Sizes())
            if len(self._sizes) > _MOST_UPSTREAMS:
                try:
                    self._sizes.popitem(last=False)
                except KeyError:  # another thread was faster
                    pass
        return sizes

    def share(self, gate: Any, key: str) -> None:
        """Have other processes with the same store know of the pace of a gate, and this one of theirs."""
        if self._store is None or gate.pacer.is_shared:
            return
        from fastlane.knowledge.stores._pacing_sharing import share

        share(gate.pacer, self._store, key=key)

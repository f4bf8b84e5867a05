"""What an `Urgency` play remembers of upstreams: how many tokens their calls have, and whose pace is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.redis import shared
from fastlane.knowledge.table import Table

from ..pacing._sharing import SharedPace

if TYPE_CHECKING:
    from ..admission import Gate


class Memory:
    """Shared by all clients that a play is given to. Threads may share it."""

    def __init__(self, store: str | None = None) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self._redis = None if store is None else shared(store, setting="Urgency(store=...)")
        self._sizes: Table[tuple[str, str | None], CallSizes] = Table("sizes of calls", max_entries=256)

    def sizes(self, origin: str, model: str | None) -> CallSizes:
        """Those of an upstream's calls."""
        return self._sizes.fetch((origin, model), CallSizes)

    def share(self, gate: Gate, key: str) -> None:
        """Share the pace of a gate with other processes that have the same store."""
        if self._redis is not None and not gate.pacer.is_shared:
            gate.pacer.share(SharedPace(self._redis, key))

"""What an `Urgency` play remembers of upstreams: how many tokens their calls have, and whose pace is shared."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..hedging._sizes import Sizes

_MOST_UPSTREAMS = 256


class Memory:
    """Shared by all clients that a play is given to.

    Nothing is locked: what two threads learn at the same moment may count once.
    """

    def __init__(self, store: Any = None) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self._store = store
        if isinstance(store, str):
            from ..stores._store import store_of

            self._store = store_of(store, namespace="fastlane:urgency")
        self._sizes: OrderedDict[tuple[str, str | None], Sizes] = OrderedDict()
        self.logged: set[str] = set()
        """What was said in the log, so that it is said once."""

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

"""What a `PromptCache` play remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._governor import Governor
from ._keys import session_of, stable_key
from ._ledger import Ledger

if TYPE_CHECKING:
    from ._outline import Outline

# As many as are forgotten at once: to find them again takes microseconds.
_MOST_KNOWN = 8_192
# By these fields a body may say itself who is talking.
_NAMING = frozenset({"conversation", "metadata", "previous_response_id", "safety_identifier", "user"})

_T = TypeVar("_T")


class PromptMemory:
    """What one play knows of the prompts that were sent: shared by all clients that the play was given to."""

    __slots__ = ("_keys", "_replicas", "_sessions", "governor", "ledger")

    def __init__(self, *, quotes: bool, kept_bytes: int, replicas: int) -> None:
        self.ledger = Ledger(quotes=quotes, kept_bytes=kept_bytes)
        self._replicas = replicas
        self.governor = Governor(replicas=replicas)
        # By the outline's hashes, which are the process's own: no text is kept.
        self._keys: dict[int, str] = {}
        self._sessions: dict[int, int] = {}

    def __reduce__(self) -> tuple[Any, tuple[bool, int, int]]:
        """A copy remembers nothing: what is known is known by hashes that another process does not have."""
        return _memory, (self.ledger.quotes, self.ledger.kept_bytes, self._replicas)

    def key_of(
        self, endpoint: str, body: Mapping[str, Any], placements: Sequence[Any] | None, outlined: Outline
    ) -> str:
        """The prompt's cache key, see `stable_key`; of what begins alike it is worked out once."""
        if placements is not None:
            return stable_key(endpoint, body, placements)
        seen = hash((body.get("model"), outlined.sections[:-1], outlined.digests[: outlined.leading]))
        key = self._keys.get(seen)
        if key is None:
            key = stable_key(endpoint, body)
            _remember(self._keys, seen, key)
        return key

    def session_of(
        self, endpoint: str, body: Mapping[str, Any], placements: Sequence[Any] | None, outlined: Outline
    ) -> int:
        """Who is talking, see `session_of`; where nothing but the first message says so, it is worked out once."""
        leading, digests = outlined.leading, outlined.digests
        if placements is not None or leading >= len(digests) or not _NAMING.isdisjoint(body):
            return session_of(endpoint, body, placements)
        session = self._sessions.get(digests[leading])
        if session is None:
            session = session_of(endpoint, body)
            _remember(self._sessions, digests[leading], session)
        return session

    def clear(self) -> None:
        """Forget all prompts, counts and rates."""
        self.ledger.clear()
        self.governor = Governor(replicas=self._replicas)


def _memory(quotes: bool, kept_bytes: int, replicas: int) -> PromptMemory:
    return PromptMemory(quotes=quotes, kept_bytes=kept_bytes, replicas=replicas)


def _remember(known: dict[int, _T], seen: int, value: _T) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[seen] = value

"""What a `PromptCache` play remembers, and one call's part in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._diagnostics import provider_reason
from ._governor import Governor
from ._keys import session_of, stable_key
from ._ledger import Ledger

if TYPE_CHECKING:
    from fastlane.records.prompt import PromptCacheRecord
    from fastlane.records.usage import Usage

    from ._ledger import Sighting
    from ._outline import Outline

# As many as are forgotten at once: to find them again takes microseconds.
_MOST_KNOWN = 8_192
# By these fields a body may say itself who is talking.
_NAMING = frozenset({"conversation", "metadata", "previous_response_id", "safety_identifier", "user"})

_T = TypeVar("_T")


class PromptMemory:
    """What one play knows of the prompts that were sent: shared by all clients that the play was given to."""

    __slots__ = ("_keys", "_replicas", "_sessions", "governor", "ledger")

    def __init__(self, *, explain_text: bool, replicas: int) -> None:
        self.ledger = Ledger(explain_text=explain_text)
        self._replicas = replicas
        self.governor = Governor(replicas=replicas)
        # By the outline's hashes, which are the process's own: no text is kept.
        self._keys: dict[int, str] = {}
        self._sessions: dict[int, int] = {}

    def __reduce__(self) -> tuple[Any, tuple[bool, int]]:
        """A copy remembers nothing: what is known is known by hashes that another process does not have."""
        return _memory, (self.ledger.explains_text, self._replicas)

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


def _memory(explain_text: bool, replicas: int) -> PromptMemory:
    return PromptMemory(explain_text=explain_text, replicas=replicas)


def _remember(known: dict[int, _T], seen: int, value: _T) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[seen] = value


class PromptAccount:
    """What is to be expected of the provider's cache for one call, until the call is over."""

    __slots__ = ("_key_field", "_sighting")

    reason_of = staticmethod(provider_reason)

    def __init__(self, sighting: Sighting, key_field: str | None) -> None:
        self._sighting = sighting
        self._key_field = key_field

    def refused(self, fields: tuple[str, ...]) -> None:
        """The call goes out without these fields."""
        if self._key_field in fields:
            self._sighting.sent_without_key()

    def settle(
        self, usage: Usage, *, answered: bool, now_ns: int, provider_reason: str | None = None
    ) -> PromptCacheRecord:
        """The call is over, at `now_ns`; what its record says of the cache."""
        return self._sighting.settle(usage, answered=answered, now_ns=now_ns, provider_reason=provider_reason)

"""The provider's prompt cache: which prefixes it holds, on which machine, until when."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from fastlane.emulator import _tokens

_MINUTE_NS = 60_000_000_000
_MOST_BLOCKS = 200_000

ROUTED_CHARACTERS = 256 * _tokens.CHARACTERS_PER_TOKEN
"""By so much of a prompt's beginning, and by its key, OpenAI chooses the machine ("the first 256 tokens typically"):
https://developers.openai.com/api/docs/guides/prompt-caching"""


@dataclass(kw_only=True)
class PrefixCache:
    """Remembers prefixes block by block; a block is forgotten after `expiry_ns` without use.

    With `per_minute` it is a fleet: the hash of the first 256 tokens and of the key names the machine. Of what comes
    for both, no machine takes more than `per_minute` requests in a minute; others go to the first additional machine.
    """

    block_tokens: int
    minimum_tokens: int
    expiry_ns: int
    machines: int
    per_minute: float = 0
    _expires: dict[tuple[int, Hashable, bytes], int] = field(default_factory=dict)
    _routes: dict[int, list[deque[int]]] = field(default_factory=dict)

    def machine(self, cache_key: str | None, random: Random, *, prefix: str = "", now: int = 0) -> int:
        """Return the machine that takes a request; in a fleet, count it."""
        drawn = random.randrange(self.machines)
        if self.per_minute:
            return self._routed(f"{len(prefix)}:{prefix}{cache_key or ''}", now)
        if cache_key is None:
            return drawn
        return _hashed(cache_key) % self.machines

    def _routed(self, route: str, now: int) -> int:
        hashed = _hashed(route)
        since = now - _MINUTE_NS
        machines = self._routes.setdefault(hashed, [])
        taken = [sum(time > since for time in times) for times in machines]
        additional = next((at for at, count in enumerate(taken) if count < self.per_minute), len(machines))
        if additional == len(machines):
            machines.append(deque(maxlen=math.ceil(self.per_minute)))
        machines[additional].append(now)
        return (hashed + additional) % self.machines

    def cached_tokens(self, machine: int, lane: Hashable, digests: tuple[bytes, ...], now: int) -> int:
        """Return how many tokens of the prompt the machine still holds: whole blocks, and 0 below the minimum."""
        expired = (at for at, digest in enumerate(digests) if self._expires.get((machine, lane, digest), 0) <= now)
        tokens = next(expired, len(digests)) * self.block_tokens
        return tokens if tokens >= self.minimum_tokens else 0

    def remember(self, machine: int, lane: Hashable, digests: tuple[bytes, ...], now: int) -> None:
        """Hold a prompt's blocks from now on, and forget what has expired."""
        if len(self._expires) > _MOST_BLOCKS:
            self._expires = {key: until for key, until in self._expires.items() if until > now}
        for digest in digests:
            self._expires[machine, lane, digest] = now + self.expiry_ns

    def clear(self) -> None:
        self._expires.clear()
        self._routes.clear()


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")

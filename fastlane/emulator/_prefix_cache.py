"""The provider's prompt cache: which prefixes it holds, on which machine, until when."""

from __future__ import annotations

from hashlib import blake2b
from random import Random


class PrefixCache:
    """Remembers prefixes block by block; a block is forgotten after `expiry_ns` without use.

    With several machines each has its own memory. A `prompt_cache_key` sends a request always to the same machine,
    a request without one goes to any: this is how a stable key raises the hit rate.
    """

    def __init__(self, *, block_tokens: int, minimum_tokens: int, expiry_ns: int, machines: int) -> None:
        self._block_tokens = block_tokens
        self._minimum_tokens = minimum_tokens
        self._expiry_ns = expiry_ns
        self._machines = machines
        self._expires: dict[tuple[int, str, bytes], int] = {}

    def machine(self, cache_key: str | None, random: Random) -> int:
        """Return the machine that takes a request."""
        drawn = random.randrange(self._machines)
        if cache_key is None:
            return drawn
        return int.from_bytes(blake2b(cache_key.encode(), digest_size=8).digest(), "big") % self._machines

    def cached_tokens(self, machine: int, model: str, digests: tuple[bytes, ...], now: int) -> int:
        """Return how many tokens of the prompt the machine still holds: whole blocks, and 0 below the minimum."""
        held = 0
        for digest in digests:
            if self._expires.get((machine, model, digest), 0) <= now:
                break
            held += 1
        tokens = held * self._block_tokens
        return tokens if tokens >= self._minimum_tokens else 0

    def remember(self, machine: int, model: str, digests: tuple[bytes, ...], now: int) -> None:
        """Hold a prompt's blocks from now on, and forget what has expired."""
        if len(self._expires) > 200_000:
            self._expires = {key: until for key, until in self._expires.items() if until > now}
        for digest in digests:
            self._expires[(machine, model, digest)] = now + self._expiry_ns

    def clear(self) -> None:
        """Forget everything."""
        self._expires.clear()

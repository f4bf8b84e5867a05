"""Remember which upstream recently received which prompt prefix, by hashes of blocks."""

from __future__ import annotations

from .sightings import Upstream
from .table import Table

# Providers keep prompts in blocks of 16 to 128 tokens, most of them from 1,024 tokens on: this is about 512 tokens.
_BLOCK_BYTES = 2_048
_MOST_BLOCKS_OF_ONE = 512
# Of 64 MB of prompts, in a tenth of that memory.
_MAX_BLOCKS = 32_768
# More than any catalog has for one prompt within its lifetime.
_MOST_UPSTREAMS = 32
_LONGEST_LIFETIME_S = 1e9

_Readers = tuple[tuple[Upstream, int], ...]


class PrefixMemory:
    """The prefixes that upstreams have received.

    Thread-safe. No text is kept. The hashes are Python's own, keyed per process, and mean nothing elsewhere.
    """

    def __init__(self) -> None:
        # Values are replaced and never changed, so that no thread sees a partial update.
        self._readers: Table[int, _Readers] = Table("prefixes", max_entries=_MAX_BLOCKS)

    def blocks(self, prompt: bytes) -> tuple[int, ...]:
        """Return a chained hash for each whole block of 2,048 bytes of a prompt, which covers all blocks before it too.

        Only the first megabyte is hashed. Takes about 0.3 us per kB.
        """
        found: list[int] = []
        chain = 0
        for number in range(min(len(prompt) // _BLOCK_BYTES, _MOST_BLOCKS_OF_ONE)):
            chain = hash((chain, prompt[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]))
            found.append(chain)
        return tuple(found)

    def expected(self, blocks: tuple[int, ...], now_ns: int) -> dict[Upstream, float]:
        """Return how many bytes of the prompt's prefix each upstream should still have cached.

        Upstreams without any are left out. `now_ns`: monotonic nanoseconds.
        """
        found: dict[Upstream, float] = {}
        last: _Readers | None = None
        for index in range(len(blocks) - 1, -1, -1):
            readers = self._readers.get(blocks[index])
            # Blocks of one prompt mostly share one tuple of readers.
            if readers is None or readers is last:
                continue
            last = readers
            for upstream, until_ns in readers:
                if until_ns > now_ns and upstream not in found:
                    found[upstream] = float((index + 1) * _BLOCK_BYTES)
        return found

    def note(self, blocks: tuple[int, ...], upstream: Upstream, now_ns: int, lifetime_s: float) -> None:
        """Record that an upstream has just received a prompt, and caches it for `lifetime_s` seconds."""
        if not lifetime_s > 0:
            return
        until_ns = now_ns + int(min(lifetime_s, _LONGEST_LIFETIME_S) * 1e9)
        before: _Readers | None = None
        after: _Readers = ((upstream, until_ns),)
        for block in blocks:
            readers = self._readers.get(block)
            if readers is not before:
                before = readers
                others = [one for one in readers or () if one[0] != upstream and one[1] > now_ns]
                after = ((upstream, until_ns), *others[: _MOST_UPSTREAMS - 1])
            self._readers.put(block, after)

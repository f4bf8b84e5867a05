"""Which upstream has read which beginning of a prompt lately, by hashes of its blocks."""

from __future__ import annotations

from ._upstream import Upstream

# Providers keep prompts in blocks of 16 to 128 tokens, most of them from 1,024 tokens on: this is about 512 tokens.
_BLOCK_BYTES = 2_048
_FINE_BYTES = 262_144
_COARSE_BYTES = 16_384
_MOST_BYTES = 1 << 20
# Twice as many at most, the older ones in `_old`: 32 to 64 MB of prompts, in a tenth of that.
_MOST_BLOCKS = 16_384
# No catalog has more upstreams that are sent the same prompt within its life time.
_MOST_UPSTREAMS = 32

_LONGEST_LIFETIME_S = 1e9

_Readers = tuple[tuple[Upstream, int], ...]
_Blocks = dict[int, _Readers]

_ENDS = (
    *range(_BLOCK_BYTES, _FINE_BYTES + 1, _BLOCK_BYTES),
    *range(_FINE_BYTES + _COARSE_BYTES, _MOST_BYTES + 1, _COARSE_BYTES),
)
_SPANS = tuple(zip((0, *_ENDS), _ENDS, strict=False))


class PrefixMemory:
    """What was read where. Threads and finalisers may share it without a lock: of two that write at once, one may lose.

    No text is kept. The hashes are Python's own, which are keyed per process: elsewhere they mean nothing.
    """

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        # What is in them is replaced and never changed, so that nobody sees anything half done.
        self._new: _Blocks = {}
        self._old: _Blocks = {}

    def __reduce__(self) -> tuple[type[PrefixMemory], tuple[()]]:
        """A copy remembers nothing: another process has other hashes."""
        return PrefixMemory, ()

    def blocks(self, body: bytes) -> tuple[int, ...]:
        """Return a number for each whole block of a prompt, which stands for everything before it as well.

        Blocks have 2,048 bytes up to 256 kB, and 16,384 up to 1 MB; what follows is not looked at. About 0.3 us per kB.
        """
        found: list[int] = []
        chain, size = 0, len(body)
        for start, end in _SPANS:
            if end > size:
                break
            chain = hash((chain, body[start:end]))
            found.append(chain)
        return tuple(found)

    def expected(self, blocks: tuple[int, ...], now_ns: int) -> dict[Upstream, float]:
        """Return how many bytes of the prompt's beginning each upstream has read and should still have.

        One that is not named has none of it. Sharing more with what an upstream has read never makes it fewer.
        """
        found: dict[Upstream, float] = {}
        last: _Readers | None = None
        new, old = self._new, self._old
        for index in range(min(len(blocks), len(_ENDS)) - 1, -1, -1):
            readers = new.get(blocks[index]) or old.get(blocks[index])
            # Blocks that were read together have the same readers, mostly.
            if readers is None or readers is last:
                continue
            last = readers
            for upstream, until_ns in readers:
                if until_ns > now_ns and upstream not in found:
                    found[upstream] = float(_ENDS[index])
        return found

    def note(self, blocks: tuple[int, ...], upstream: Upstream, now_ns: int, lifetime_s: float) -> None:
        """Take note that an upstream has just read a prompt, and keeps it for so many seconds."""
        if not lifetime_s > 0:
            return
        until_ns = now_ns + int(min(lifetime_s, _LONGEST_LIFETIME_S) * 1e9)
        new, old = self._new, self._old
        before: _Readers | None = None
        after: _Readers = ((upstream, until_ns),)
        for block in blocks:
            readers = new.get(block) or old.get(block)
            if readers is not before:
                before = readers
                others = [one for one in readers or () if one[0] != upstream and one[1] > now_ns]
                after = ((upstream, until_ns), *others[: _MOST_UPSTREAMS - 1])
            new[block] = after
        if len(new) >= _MOST_BLOCKS:
            self._old = new
            self._new = {}

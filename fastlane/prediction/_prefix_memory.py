"""Which upstream has read which beginning of a prompt lately, by hashes of its blocks."""

from __future__ import annotations

from collections.abc import Iterable

from ._upstream import Upstream

# A provider keeps prompts in blocks of 16 to 128 tokens, from 1,024 tokens on: 2,048 bytes are about 512 tokens.
_BLOCK_BYTES = 2_048
_FINE_BYTES = 262_144
# Beyond that, what is not shared is little beside what is.
_COARSE_BYTES = 16_384
_MOST_BYTES = 1 << 20
# Of so many blocks the oldest half is forgotten: 16 to 32 MB of prompts, in 4 to 8 MB of memory.
_MOST_BLOCKS = 16_384
# A catalog of more upstreams than that has not sent one prompt to all of them within its life time.
_MOST_UPSTREAMS = 32

_Readers = tuple[tuple[Upstream, int], ...]
_Blocks = dict[int, _Readers]


def _ends() -> tuple[int, ...]:
    fine = range(_BLOCK_BYTES, _FINE_BYTES + 1, _BLOCK_BYTES)
    return (*fine, *range(_FINE_BYTES + _COARSE_BYTES, _MOST_BYTES + 1, _COARSE_BYTES))


_ENDS = _ends()
_SPANS = tuple(zip((0, *_ENDS), _ENDS, strict=False))


class PrefixMemory:
    """What was read where. Threads and finalisers may share it without a lock: what two write at once, one may lose.

    Hashes are Python's own, which are keyed per process: they say nothing of a text, and mean nothing elsewhere.
    """

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        # Each is replaced as a whole, and each of its values too, so that nobody sees one half done.
        self._new: _Blocks = {}
        self._old: _Blocks = {}

    def blocks(self, body: bytes) -> tuple[int, ...]:
        """Return a number for each whole block of the beginning of a prompt, which stands for all before it as well.

        Blocks are 2,048 bytes up to 256 kB and 16,384 up to 1 MB; what follows is not looked at.
        """
        found: list[int] = []
        size = len(body)
        chain = 0
        for start, end in _SPANS:
            if end > size:
                break
            chain = hash((chain, body[start:end]))
            found.append(chain)
        return tuple(found)

    def expected(self, blocks: tuple[int, ...], now_ns: int) -> dict[Upstream, float]:
        """Return how many bytes of the beginning each upstream has read and should still have; none is 0."""
        found: dict[Upstream, float] = {}
        new, old = self._new, self._old
        for index in range(min(len(blocks), len(_ENDS)) - 1, -1, -1):
            block = blocks[index]
            readers = new.get(block) or old.get(block)
            if readers is None:
                continue
            for upstream, until_ns in readers:
                if until_ns > now_ns and upstream not in found:
                    found[upstream] = float(_ENDS[index])
        return found

    def note(self, blocks: Iterable[int], upstream: Upstream, now_ns: int, lifetime_s: float) -> None:
        """Take note that an upstream has read a prompt, and keeps it for so many seconds after this."""
        if not lifetime_s > 0:
            return
        until_ns = now_ns + int(min(lifetime_s, 1e9) * 1e9)
        new, old = self._new, self._old
        for block in blocks:
            readers = new.get(block) or old.get(block) or ()
            others = [one for one in readers if one[0] != upstream and one[1] > now_ns]
            new[block] = ((upstream, until_ns), *others[: _MOST_UPSTREAMS - 1])
        if len(new) >= _MOST_BLOCKS:
            self._old = new
            self._new = {}

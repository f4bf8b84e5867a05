"""Which parts of a text are the same as in an earlier one, of which only the hashes of its blocks are known.

From the front block by block; from the end, with the new text cut into blocks where the old one's would lie; and in
between wherever a row of the old blocks' hashes is met again, at any distance, which the bytes of the hashes themselves
are searched for.
"""

from __future__ import annotations

from typing import NamedTuple

from ._sketch import TextFacts, facts, stride, tags, unpack

# Up to here it is not asked whether there are two changes: one value is rarely longer.
_ONE_CHANGE_BYTES = 24
# A row of blocks that is met again by chance: 2 ** -48, unless the text repeats itself.
_ROW = 3
# How many rows are looked for behind all changes, in texts of small blocks and in longer ones, where each takes longer;
# and how many changes are told apart.
_TRIES, _TRIES_IN_LONG, _CHANGES = 192, 32, 12


class Alignment(NamedTuple):
    """The first change, and how much is the same. In bytes of UTF-8."""

    data: bytes
    """The new text."""
    old: TextFacts
    new: TextFacts
    start: int
    """Where both texts cease to be the same, rounded down to a block."""
    old_end: int
    """Where the first change is over in the old text, rounded up to a block."""
    new_end: int
    """The same place in the new text."""
    block: int
    """Up to so many bytes at each end of the change may be the same all the same."""
    same: int
    """Bytes of the new text that are also in the old one, in this order."""

    @property
    def share(self) -> float:
        """How much of the longer text is the same: 0 to 1."""
        longer = max(self.old.size, self.new.size)
        return min(1.0, self.same / longer) if longer else 1.0

    @property
    def is_single(self) -> bool:
        """Whether there is one change, and not several."""
        return self.same <= self.start + self.new.size - self.new_end

    def character(self, byte: int) -> int:
        """Characters of the new text before a byte."""
        return len(self.data[:byte].decode("utf-8", "ignore")) if byte else 0


def align(sketched: bytes, text: str) -> Alignment:
    """Lay a new text beside the sketch of an old one."""
    old, known = unpack(sketched)
    block = stride(old.size)
    data = text.encode("utf-8", "surrogatepass")
    new = facts(text, data)
    size = len(data)
    start = _from_the_front(known, data, old.size, block)
    old_end, new_end = _from_the_end(known, data, old.size, block, start)
    same = start + size - new_end
    if min(old_end, new_end) - start > _ONE_CHANGE_BYTES + 2 * block:
        old_end, new_end, more = _between(known, data, block, start, old_end, new_end)
        same += more
    return Alignment(data, old, new, start, old_end, new_end, block, same)


def _from_the_front(known: bytes, data: bytes, old_size: int, block: int) -> int:
    """Bytes at the front that are the same in both."""
    whole = min(old_size, len(data)) // block
    same = _equal_blocks(known, tags(data[: whole * block], block), whole)
    if same == whole and whole * block < old_size <= len(data):
        # The old text's last block is no whole one.
        tail = tags(data[whole * block : old_size], block)
        if tail == known[2 * whole :]:
            return old_size
    return same * block


def _from_the_end(known: bytes, data: bytes, old_size: int, block: int, start: int) -> tuple[int, int]:
    """Where the same end begins in the old text and in the new one, not before `start`."""
    shift = len(data) - old_size
    first = max(start, start - shift)
    first = -(-first // block)
    blocks = -(-old_size // block)
    if first >= blocks:
        return old_size, len(data)
    placed = tags(data[first * block + shift :], block)
    count = blocks - first
    # The highest bit that differs stands in the last block that does.
    apart = int.from_bytes(placed, "little") ^ int.from_bytes(known[2 * first :], "little")
    same = count - -(-apart.bit_length() // 16)
    if not same:
        return old_size, len(data)
    old_end = (blocks - same) * block
    return old_end, old_end + shift


def _between(known: bytes, data: bytes, block: int, start: int, old_end: int, new_end: int) -> tuple[int, int, int]:
    """Where the first change is over in both texts, and how many more bytes are the same up to the end of the last."""
    if block > 16:
        return old_end, new_end, 0
    shifted = [tags(data[start + phase : new_end], block) for phase in range(block)]
    first: tuple[int, int] | None = None
    old_at, new_at, same = start // block, start, 0
    old_last = old_end // block
    tries = _TRIES if block == 8 else _TRIES_IN_LONG
    for _ in range(_CHANGES):
        met, tried = _next(known, shifted, block, old_at, old_last, new_at - start, tries)
        tries -= tried
        if met is None:
            break
        old_at, phase, at = met
        new_at = start + phase + at * block
        first = first or (old_at * block, new_at)
        most = min(old_last - old_at, len(shifted[phase]) // 2 - at)
        count = _equal_blocks(known[2 * old_at :], shifted[phase][2 * at :], most)
        same += count * block
        old_at += count
        new_at += count * block
    return (*(first or (old_end, new_end)), same)


def _next(
    known: bytes, shifted: list[bytes], block: int, old_at: int, old_last: int, new_offset: int, tries: int
) -> tuple[tuple[int, int, int] | None, int]:
    """The nearest row of old blocks that is met again: its first block, and at which phase and block of the new text.

    Nearest is where the fewest bytes of both texts are passed over. Also how many of so many tries it took.
    """
    best: tuple[int, int, int] | None = None
    least = 1 << 62
    index, tried = old_at, 0
    while tried < tries:
        passed = (index - old_at) * block
        if index + _ROW > old_last or passed >= least:
            break
        row = known[2 * index : 2 * (index + _ROW)]
        # Of a text that repeats itself every row is met everywhere.
        if row[:2] != row[2:4]:
            for phase, hashes in enumerate(shifted):
                at = _find(hashes, row, max(0, -(-(new_offset - phase) // block)))
                if at is not None and passed + phase + at * block - new_offset < least:
                    least = passed + phase + at * block - new_offset
                    best = (index, phase, at)
        # Long stretches that were replaced are passed over in growing steps.
        index += 1 + tried // 32
        tried += 1
    return best, tried


def _find(hashes: bytes, row: bytes, least: int) -> int | None:
    at = hashes.find(row, 2 * least)
    while at != -1 and at % 2:
        at = hashes.find(row, at + 1)
    return at // 2 if at != -1 else None


def _equal_blocks(one: bytes, other: bytes, most: int) -> int:
    """How many hashes are the same from the front."""
    if one[: 2 * most] == other[: 2 * most]:
        return most
    apart = int.from_bytes(one[: 2 * most], "little") ^ int.from_bytes(other[: 2 * most], "little")
    return ((apart & -apart).bit_length() - 1) // 16

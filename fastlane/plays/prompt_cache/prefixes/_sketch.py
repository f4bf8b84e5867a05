"""What is kept of a segment instead of its text: short keyed hashes of its leaves and of their blocks.

A text is hashed in blocks of 8 bytes (up to 8 kB of text), 16 (up to 64 kB) or 128, 16 bits each, all at once: the
text becomes one integer, and each operation on it works on all blocks. A block's two halves of 32 bits are multiplied
by keys of 30 bits and added, which is multilinear hashing (D. Lemire and O. Kaser, "Strongly universal string hashing
is fast", The Computer Journal 57(11), 2014, https://arxiv.org/abs/1202.4961), folded to 32 bits, multiplied again, and
the middle bits are kept. The keys are drawn once per process, and no hash leaves it.
"""

from __future__ import annotations

import secrets
import zlib
from array import array
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from ._outline import digest

# Below this a text's whole hash says as much as blocks would.
_LEAST_TEXT = 9
# A longer one is a file, as "data:" is a picture: where in it something changed is of no use to anybody.
_MOST_TEXT = 1_000_000
_FINE_BYTES, _MIDDLE_BYTES = 8_192, 65_536
_PIECE_BYTES = 32_768
_LOW = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * (_PIECE_BYTES // 8), "little")
# 30 bits, so that an integer of any length is multiplied in one pass, and products of 32 bits stay in their 64.
_KEY_LOW, _KEY_HIGH, _KEY_FIRST, _KEY_SECOND = (secrets.randbits(29) | 1 << 29 | 1 for _ in range(4))
_WEIGHTS = bytes(secrets.randbits(8) for _ in range(256))

_BARE = b"0123456789 \t\n\r\x0b\x0c"
_HEADER = Struct("<5I")
_WORD = 0xFFFF_FFFF
# How 64 bits are shared between a value's path, its container's and the value itself.
PATH_AT, PARENT_AT, PATH_BITS, VALUE_BITS = 44, 24, 0xF_FFFF, 0xFF_FFFF
# What is kept of a container: whether it has members, which are kept by themselves.
OBJECTS, ARRAYS = {1, 2}, {3, 4}
_OBJECT, _NO_OBJECT, _ARRAY, _NO_ARRAY, _NULL = 1, 2, 3, 4, 5
_ROOT = hash("fastlane.prefixes")
# Deeper than any schema; what contains itself ends here.
_MAX_DEPTH = 48

Leaf = tuple[str | int, ...]
"""The way from a segment to a value in it: ("function", "parameters", "required", 0)."""


class Sketch:
    """Hashes from which can be told where and how another segment differs from this one; no text."""

    __slots__ = ("leaves", "size", "texts")

    size: int
    """Characters of the segment's texts."""
    leaves: array[int]
    """For each value and container, in reading order: 20 bits of its path, 20 of its container's, 24 of itself."""
    texts: tuple[tuple[int, bytes], ...]
    """For longer texts, by the index of their leaf: see `text_sketch`."""

    def __init__(self, size: int, leaves: array[int], texts: tuple[tuple[int, bytes], ...]) -> None:
        self.size = size
        self.leaves = leaves
        self.texts = texts


class TextFacts(NamedTuple):
    """What `text_sketch` packs before the hashes of the blocks."""

    size: int
    """Bytes in UTF-8."""
    whole: int
    """The whole text."""
    bare: int
    """The text without its digits and white space."""
    spaces: int
    """How many spaces, line ends and tabs it has, in one number."""
    letters: int
    """The bytes regardless of their order, for a text that may be JSON; else 0."""


def sketch(value: Any) -> Sketch:
    """Hash the leaves of a segment, and the blocks of its texts.

    3 to 4 us per kB of text, and 1 us for each member of a structure. Takes an eighth of a long text, a quarter of one
    up to 8 kB. Never raises.
    """
    leaves: array[int] = array("Q")
    texts: list[tuple[int, bytes]] = []
    size = 0
    for path, parent, member in walk(value):
        leaves.append(record(path, parent, member))
        if isinstance(member, str):
            size += len(member)
            if _LEAST_TEXT <= len(member) <= _MOST_TEXT and not member.startswith("data:"):
                texts.append((len(leaves) - 1, text_sketch(member)))
    return Sketch(size, leaves, tuple(texts))


def record(path: int, parent: int, value: Any) -> int:
    """What is kept of one container or value: see `Sketch.leaves`."""
    return (path & PATH_BITS) << PATH_AT | (parent & PATH_BITS) << PARENT_AT | leaf_hash(value)


def leaf_hash(value: Any) -> int:
    """24 bits of a value; containers of one kind are alike, unless empty."""
    if isinstance(value, str):
        return hash(value) & VALUE_BITS
    if value is None:
        return _NULL
    if isinstance(value, dict | Mapping):
        return _OBJECT if value else _NO_OBJECT
    if isinstance(value, list | tuple):
        return _ARRAY if value else _NO_ARRAY
    return digest(value) & VALUE_BITS


def walk(value: Any) -> list[tuple[int, int, Any]]:
    """Every container and value in reading order: the hash of its path, that of its container's path, and itself.

    The items of `required` in a JSON schema have one path, since their order means nothing.
    """
    found: list[tuple[int, int, Any]] = []
    _walk(value, _ROOT, 0, 0, found)
    return found


def _walk(value: Any, path: int, parent: int, depth: int, found: list[tuple[int, int, Any]]) -> None:
    found.append((path, parent, value))
    if depth >= _MAX_DEPTH:
        return
    if isinstance(value, dict | Mapping):
        for key, member in value.items():
            inner = hash((path, key))
            if isinstance(member, str):
                found.append((inner, path, member))
            else:
                _walk(member, inner, path, depth + 1, found)
    elif isinstance(value, list | tuple):
        unordered = path == below(parent, "required")
        for index, member in enumerate(value):
            _walk(member, below(path, 0 if unordered else index), path, depth + 1, found)


def paths(value: Any) -> list[Leaf]:
    """The way to each thing that `walk` finds, in the same order."""
    found: list[Leaf] = []
    _paths(value, (), 0, found)
    return found


def _paths(value: Any, path: Leaf, depth: int, found: list[Leaf]) -> None:
    found.append(path)
    if depth >= _MAX_DEPTH:
        return
    if isinstance(value, dict | Mapping):
        for key, member in value.items():
            _paths(member, (*path, key), depth + 1, found)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            _paths(member, (*path, index), depth + 1, found)


def below(path: int, key: str | int) -> int:
    """The hash of the path that leads from a container to a member."""
    return hash((path, key))


def whole_hash(text: str) -> int:
    """`TextFacts.whole` of a text."""
    return hash(text) & _WORD


def text_sketch(text: str) -> bytes:
    """`TextFacts` and the hashes of the blocks of a text."""
    data = text.encode("utf-8", "surrogatepass")
    size = len(data)
    return b"".join((_HEADER.pack(*facts(text, data)), tags(data, stride(size))))


def facts(text: str, data: bytes) -> TextFacts:
    """What is known of a text as a whole; `data` is the text in UTF-8."""
    letters = 0
    # Only of what may be JSON: elsewhere words change places, and keys do not.
    if data[:1] in {b"{", b"["}:
        # The low half of Adler-32 is the sum of the bytes.
        letters = zlib.adler32(data) << 16 & _WORD | zlib.adler32(data.translate(_WEIGHTS)) & 0xFFFF
    return TextFacts(
        len(data) & _WORD,
        whole_hash(text),
        hash(data.translate(None, _BARE)) & _WORD,
        (data.count(b" ") + 1_009 * data.count(b"\n") + 10_007 * data.count(b"\t") + 100_003 * data.count(b"\r"))
        & _WORD,
        letters,
    )


def unpack(sketched: bytes) -> tuple[TextFacts, bytes]:
    """What `text_sketch` packed: the facts, and the hashes of the blocks, two bytes each."""
    return TextFacts(*_HEADER.unpack_from(sketched)), sketched[_HEADER.size :]


def stride(size: int) -> int:
    """Bytes of text in a block, for a text of so many bytes."""
    return 8 if size <= _FINE_BYTES else 16 if size <= _MIDDLE_BYTES else 128


def tags(data: bytes, block: int) -> bytes:
    """The hashes of a text's blocks, two bytes each; the last block counts as filled up with zeros."""
    if block == 128:
        return tags(tags(data, 16), 16)
    if len(data) > _PIECE_BYTES:
        return b"".join(_tags(data[at : at + _PIECE_BYTES], block) for at in range(0, len(data), _PIECE_BYTES))
    return _tags(data, block)


def _tags(data: bytes, block: int) -> bytes:
    blocks = -(-len(data) // block)
    number = int.from_bytes(data, "little")
    number = (number & _LOW) * _KEY_LOW + (number >> 32 & _LOW) * _KEY_HIGH
    number = (number ^ number >> 31) & _LOW
    mixed = number * _KEY_FIRST
    if block == 16:
        mixed += number * _KEY_SECOND >> 64
    # The sum of an odd half's neighbour reaches one lane below the first, where nothing is.
    written = mixed.to_bytes(blocks * block, "little")
    found = bytearray(2 * blocks)
    found[0::2] = written[3::block]
    found[1::2] = written[4::block]
    return bytes(found)

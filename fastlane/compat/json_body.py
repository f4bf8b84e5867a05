"""Write a JSON body to the byte as openai does, at the speed of orjson, wherever the two provably agree.

openai writes bodies with the standard library's encoder. orjson differs from it on values that the encoder refuses
(NaN, enumerations, UUIDs, whole dataclasses), and in how it writes the exponents of floats. So its output stands only
where nothing but plain JSON is inside and every float reads the same; everything else is left to openai's function.
"""

from __future__ import annotations

from collections.abc import Collection
from gc import get_referents
from itertools import islice
from types import NoneType

import orjson

PLAIN_TYPES = frozenset({dict, list, tuple, str, int, float, bool, NoneType})

# What orjson itself refuses to nest any deeper.
_MAX_DEPTH = 255

# What contains itself twice grows without end, level by level: beyond this it is not looked at any further.
_MAX_MEMBERS = 1_000_000

# Refused rather than written in a way of orjson's own. Keys that are no strings, surrogates and integers beyond 64 bits
# are refused without being asked.
_STRICTLY = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def is_plain(value: object, types: Collection[type] = PLAIN_TYPES) -> bool:
    """Whether there is nothing but exact `types` inside, keys included; False for what contains itself.

    About 30 ns for each member: strings are not read.
    """
    try:
        return _floats(value, frozenset(types), _MAX_MEMBERS) is not None
    except Exception:  # noqa: BLE001 - what cannot be looked at is left to openai
        return False


def stock_bytes(value: object, types: Collection[type] = PLAIN_TYPES) -> bytes | None:
    """Exactly the bytes that `openai._utils._json.openapi_dumps` writes; None where it has to do it, or to raise.

    None as well where there is anything inside but exact `types`.
    """
    try:
        # First, because it goes down before it goes on: what contains itself, or is nested too deeply, ends here.
        text = orjson.dumps(value, option=_STRICTLY)
        # A member takes a byte at least, and so does a key.
        floats = _floats(value, frozenset(types), len(text))
        if floats is None:
            return None
        # NaN and infinity have a text of their own in both.
        return text if all(orjson.dumps(one) == repr(one).encode() for one in floats) else None
    except Exception:  # noqa: BLE001 - whatever orjson or a value's own code raises, openai's function says it better
        return None


def longer_bytes(written: bytes, body: dict[str, object], longer: dict[str, object]) -> bytes | None:
    """The bytes of `longer`, which begins with the very members of `body`, whose bytes were written; None elsewhere."""
    count = len(body)
    if not body or len(longer) < count:
        return None
    members = iter(longer.items())
    # Identity: an equal member may be written otherwise (1 and 1.0), and what was changed is another object.
    if not all(
        name == own and value is given for (own, given), (name, value) in zip(body.items(), members, strict=False)
    ):
        return None
    added = dict(islice(longer.items(), count, None))
    if not added:
        return written
    more = stock_bytes(added)
    return None if more is None else b"".join((memoryview(written)[:-1], b",", memoryview(more)[1:]))


def has_float_beyond(value: object, bound: float) -> bool:
    """Whether a float of at least this size is inside a value of plain JSON types; True where there are other types."""
    floats = _floats(value, PLAIN_TYPES, _MAX_MEMBERS)
    return floats is None or any(abs(one) >= bound for one in floats)


def _floats(value: object, types: frozenset[type], max_members: int) -> list[float] | None:
    """All floats inside a value; None if there is any type but `types`.

    Level by level, and each level by C code alone: nothing here runs once per string. The containers of the standard
    types name their members and keys as referents, and strings and numbers have none. An instance of any other type is
    found before its referents are asked for, which would lead to its class and from there to everything.
    """
    level: list[object] = [value]
    floats: list[float] = []
    for _ in range(_MAX_DEPTH + 2):
        found = set(map(type, level))
        if not found <= types:
            return None
        if float in found:
            floats += [member for member in level if type(member) is float]
        level = get_referents(*level)
        if not level:
            return floats
        if len(level) > max_members:
            return None
    return None

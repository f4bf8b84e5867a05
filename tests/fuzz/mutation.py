"""Documents no provider would send: parts deleted, nulled, retyped, renamed, swapped, written twice or in odd JSON."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any, Literal, get_args, get_origin

from fastlane.decode import _types as types

_MARK = "\ue000"
_RAW = re.compile(f'"{_MARK}([0-9a-f]*){_MARK}"')
# JSON that no value of Python stands for; what is no JSON at all is among it.
_TEXTS = (
    "-0", "-0.0", "1e400", "-1E400", "1e-400", "NaN", "Infinity", "-Infinity", "1E+2", "0e0", "9007199254740993",
    "9007199254740992", "-9007199254740993.0", "18446744073709551616", "1" + "0" * 308, "1" + "0" * 310, "9" * 4400,
    "0.1000000000000000055511151231257827021181583404541015625", "01", "1.", "nan", "[1,]", "nul", "'a'", "",
    *(f'"{text}"' for text in (r"\ud800", r"\ud83d\ude00", r"\u0000", r"\/", r"\x", "\t", r"\ud83dx", r"\u00e9")),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -3, 2**40, 2**53, 2**53 + 1, -(2**60), 10**20, 1.0, 0.5, -2.5e300, "", "x", "5", "1.5",
    "true", "stop", "default", "on_demand", "assistant", "function", "message", "completed", "auto", "\u2028é😀", [],
    ["a"], [1], [1.5, 2], [None], [[1]], [{}], [{"index": 0}], {}, {"a": 1}, {"type": "message"}, {"type": "function"},
    {"content": "q"}, {"error": {"message": "m"}}, {"role": "user", "content": "x"}, {"cached_tokens": 1},
)  # fmt: skip
_KEYS = (
    "extra", "error", "type", "index", "id", "content", "object", "choices", "delta", "message", "async", "async_",
    "schema", "schema_", "reasoning_content", "_fields_set", "_BaseModel__cls", "__cls", "self", "cls", "values",
    "model_config", "__dict__", "_request_id", "é", "",
)  # fmt: skip


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        found += _paths(inner, (*path, key))
    return found


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _change(document: Any, draw: random.Random, others: list[Any]) -> None:
    paths = _paths(document)
    if not paths:
        return
    path = draw.choice(paths)
    holder, key = _at(document, path[:-1]), path[-1]
    kind = draw.random()
    if kind < 0.3:
        holder[key] = copy.deepcopy(draw.choice(VALUES))
    elif kind < 0.42:
        del holder[key]
    elif kind < 0.5:
        holder[key] = None
    elif kind < 0.58:
        other = draw.choice(paths)
        holder[key] = copy.deepcopy(_at(document, other))
    elif kind < 0.64:
        stranger = draw.choice(others)
        where = _paths(stranger)
        holder[key] = copy.deepcopy(_at(stranger, draw.choice(where)) if where else stranger)
    elif kind < 0.73:
        holder[key] = f"{_MARK}{draw.choice(_TEXTS).encode().hex()}{_MARK}"
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(draw.choice((*VALUES, holder[key]))))
    elif kind < 0.8:
        holder[f"{draw.choice([*holder, *_KEYS])}{_MARK * draw.randint(1, 2)}"] = copy.deepcopy(draw.choice(VALUES))
    elif kind < 0.86:
        holder[draw.choice(_KEYS)] = holder.pop(key)
    else:
        holder[draw.choice((*_KEYS, *holder))] = copy.deepcopy(draw.choice(VALUES))


def changed(document: Any, draw: random.Random, others: list[Any]) -> Any:
    """A copy of the document with a few changes."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 5))):
        _change(document, draw, others)
    return document


def mutated(document: Any, draw: random.Random, others: list[Any]) -> bytes:
    """The document with a few changes, as JSON text."""
    document = changed(document, draw, others)
    if draw.random() < 0.1:
        entries = list(document.items())
        draw.shuffle(entries)
        document = dict(entries)
    return written(document, draw)


def written(document: Any, draw: random.Random) -> bytes:
    """JSON text in one of the ways in which servers write it; marks become what they stand for."""
    compact = draw.random() < 0.6
    text = json.dumps(
        document, ensure_ascii=draw.random() < 0.5, separators=(",", ":") if compact else None,
        indent=1 if draw.random() < 0.05 else None,
    )  # fmt: skip
    text = text.replace("\\ue000", _MARK)
    text = _RAW.sub(lambda found: bytes.fromhex(found[1]).decode(), text)
    return text.replace(_MARK, "").encode("utf-8", "surrogatepass")


def sample(annotation: Any, draw: random.Random, depth: int = 0) -> Any:
    """A JSON value of a type, as its annotation describes it; now and then with a field too many."""
    found = types.members(annotation)
    if type(None) in found and (depth > 6 or draw.random() < 0.4):
        return None
    one = draw.choice([member for member in found if member is not type(None)])
    origin, arguments = get_origin(one) or one, get_args(one)
    if types.is_model(one):
        made = {
            field.alias or name: sample(field.annotation, draw, depth + 1)
            for name, field in types.built(one).model_fields.items()
            if field.is_required() or draw.random() < 0.6
        }
        return made if draw.random() < 0.9 else made | {draw.choice(_KEYS[:5]): draw.choice(VALUES)}
    if origin is list:
        return [sample(arguments[0], draw, depth + 1) for _ in range(draw.choice((0, 1, 1, 2) if depth < 6 else (0,)))]
    if origin is dict:
        return {
            key: sample(arguments[1], draw, depth + 1) for key in draw.sample(("a", "b", "type"), draw.randint(0, 2))
        }
    if origin is Literal:
        return draw.choice(arguments)
    plain: dict[Any, Any] = {str: ("", "text", "é"), int: (0, 1, 7), float: (0, 0.5, -3.25, 1e-9), bool: (True, False)}
    return draw.choice(plain.get(origin, VALUES))

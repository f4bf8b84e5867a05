"""Write tools and schemas in one way, whatever order their dictionaries were built in: the same bytes in every process.

The rules are those that agents arrived at that lost cache hits to the order of keys (DeepSeek-Reasonix #2189): the
order of an object's keys and of `required` says nothing, by JSON (RFC 8259, section 4) and by JSON Schema
(2020-12 validation, section 6.5.3); the order of any other array may say something to the model, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

_In = Literal["schema", "names", "data"]

# Keywords whose objects name schemas: a property may be called "required" or "enum".
_NAMING_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# Keywords whose values are JSON values of the application's, and no schemas: nothing in there is a keyword.
_HOLDING_DATA = frozenset({"enum", "const", "default", "example", "examples"})


def canonical(value: Any, *, keep_property_order: bool = False) -> Any:
    """A tool, a list of tools or a schema with its objects' keys sorted by code point, and `required` sorted.

    All other arrays stay as they are: `enum`, `anyOf`, `oneOf`, `allOf`, `prefixItems`, `examples`, `type`, the list of
    tools. In data (`enum`, `const`, `default`, `examples`) keys are sorted too, and arrays never. Models write the
    fields of structured output in the order of `properties`: `keep_property_order` keeps that one. What is no plain
    JSON is handed back as it came. The value itself is not changed, and nothing that can be changed is shared with it.
    """
    return _written(value, "schema", keep_property_order)


def _written(value: Any, where: _In, keep: bool) -> Any:
    kind = type(value)
    if kind is str or kind is bool or kind is int:  # most values, and a check for each costs more than writing them
        return value
    if kind is dict or isinstance(value, Mapping):
        names = list(value) if keep and where == "names" else _in_order(value)
        return {name: _member(name, value[name], where, keep) for name in names}
    if isinstance(value, list | tuple):
        inner: _In = "data" if where == "data" else "schema"
        return [_written(member, inner, keep) for member in value]
    return value


def _in_order(value: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:  # names of several types, which JSON does not have
        return list(value)


def _member(name: Any, value: Any, where: _In, keep: bool) -> Any:
    if where == "names":
        return _written(value, "schema", keep)
    if where == "data" or name in _HOLDING_DATA:
        return _written(value, "data", keep)
    if name in _NAMING_SCHEMAS and isinstance(value, Mapping):
        return _written(value, "names", keep)
    written = _written(value, "schema", keep)
    if name == "required" and isinstance(written, list) and all(isinstance(one, str) for one in written):
        written.sort()
    return written


def ordered_tools(tools: Sequence[Any]) -> list[Any]:
    """The tools in the order of their names; of tools without a name, of their types; of equal ones, of their bytes.

    Which tool comes first may sway which one a model takes, so nothing calls this unasked.
    """
    return sorted(tools, key=_place)


def _place(tool: Any) -> tuple[str, str, bytes]:
    if not isinstance(tool, Mapping):
        return "", "", _bytes(tool)
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    name = name or tool.get("name") or tool.get("server_label")
    return str(name or ""), str(tool.get("type") or ""), _bytes(tool)


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # not JSON: openai has a say in what becomes of it
        return b""

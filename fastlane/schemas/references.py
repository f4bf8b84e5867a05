"""Follow a `$ref` inside of a JSON schema, and write one as the key of what is worked out for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import orjson

Schema = Mapping[str, Any] | bool

# Of a list; no list has more items.
_PLACE = re.compile(r"0|[1-9][0-9]{0,8}").fullmatch


def resolve(root: Schema, reference: str) -> Schema | None:
    """Return what a reference such as "#/$defs/Node" leads to; None where it leads out of the document or nowhere.

    Anchors and identifiers are not followed: what they lead to counts as unknown.
    """
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    at: Any = root
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(at, Mapping) and name in at:
            at = at[name]
        elif isinstance(at, list) and _PLACE(name) and int(name) < len(at):
            at = at[int(name)]
        else:
            return None
    return at if isinstance(at, Mapping | bool) else None


def written(schema: Any) -> bytes:
    """Return a schema as JSON. Raises TypeError, ValueError or RecursionError for what cannot be written."""
    try:
        return orjson.dumps(schema, default=dict)
    except TypeError:
        # Whole numbers beyond 64 bits and halves of surrogate pairs are JSON too.
        return json.dumps(schema, default=dict).encode()

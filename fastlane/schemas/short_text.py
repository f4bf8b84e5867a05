"""Put names and texts in the place of others in a JSON text, place by place, and leave everything else as it is."""

from __future__ import annotations

import json
import re
from typing import Any

# Strings, the last of which may break off, and what tells where a value stands. What is between them is handed on.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)|[{}\[\],:]', re.DOTALL)


class Node:
    """One place of a value: what names and texts are called there instead, and what is below."""

    __slots__ = ("items", "names", "others", "texts")

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, Node]] = {}
        """By name: what it becomes, and the place of what stands under it."""
        self.texts: dict[str, str] = {}
        self.others: Node | None = None
        self.items: Node | None = None


def renamed_text(text: str, top: Node) -> str:
    """Return a JSON text with other names and texts; one that breaks off, or is no JSON, as far as it goes."""
    pieces: list[str] = []
    end = 0
    # Containers that are open, each with the place that it stands at.
    within: list[tuple[str, Node | None]] = []
    here: Node | None = top
    is_name = False
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[0] == '"':
            if not found[1].endswith('"'):
                break
            new = None
            if is_name:
                around = within[-1][1]
                new, here = _under(_read(token), around)
            elif here is not None and here.texts:
                new = here.texts.get(_read(token))
            if new is not None:
                pieces += (text[end : found.start()], json.dumps(new, ensure_ascii=False))
                end = found.end()
        elif token == "{":
            within.append((token, here))
            is_name = True
        elif token == "[":
            within.append((token, here))
            here = here.items if here is not None else None
        elif token == ":":
            is_name = False
        elif not within:
            break
        elif token == ",":
            opened, around = within[-1]
            is_name = opened == "{"
            here = around.items if around is not None and not is_name else None
        else:
            within.pop()
            is_name = False
        if not within:
            break
    return "".join((*pieces, text[end:]))


def renamed(value: Any, here: Node | None) -> Any:
    """Return a parsed value with other names and texts."""
    if here is None:
        return value
    if isinstance(value, str):
        return here.texts.get(value, value)
    if isinstance(value, list):
        return [renamed(one, here.items) for one in value]
    if isinstance(value, dict):
        new = {}
        for name, one in value.items():
            other, below = _under(name, here)
            new[other or name] = renamed(one, below)
        return new
    return value


def _under(name: str, here: Node | None) -> tuple[str | None, Node | None]:
    """What a name becomes, None for itself, and the place of what stands under it."""
    if here is None:
        return None, None
    new, below = here.names.get(name, (None, here.others))
    return (None if new == name else new), below


def _read(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        written: str = json.loads(token, strict=False)
    except ValueError:
        return token[1:-1]
    return written

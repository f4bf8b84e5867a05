"""Find outputs of tools that a later one makes redundant: read again, or the same or nearly the same text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ._parts import ToolCall

# A later output that is much shorter may be an error, or a note that nothing has changed: then the earlier one is what
# there is to know.
_LEAST_LENGTH_OF_LATER = 0.5
# Share of an output's characters, in lines that a later output has too, from which on it is nearly the same.
_NEARLY = 0.9
# How many of an output's longest lines are looked up to find outputs that it could be a copy of. Where they come to
# more than what may differ, a copy has one of them at least.
_LOOKED_UP = 8
_MOST_OWNERS = 16
# Shorter texts are stubs themselves, or cost no more than one.
_SHORTEST = 80

_PATHS = frozenset(("path", "file", "filepath", "filename", "uri", "url", "targetfile", "absolutepath", "notebookpath"))
_READS = frozenset(("read", "open", "view", "cat", "show", "get", "load", "fetch", "display", "print", "inspect"))
_WRITES = frozenset(
    ("write", "edit", "create", "delete", "remove", "update", "replace", "insert", "append", "move", "rename", "patch",
     "set", "save", "put", "post", "apply", "search", "find", "grep", "list", "glob")
)  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Output(NamedTuple):
    """One output of a tool that is still there."""

    at: int
    call: ToolCall | None
    text: str


class Redundant(NamedTuple):
    """An output that a later one makes redundant."""

    at: int
    kind: Literal["superseded", "duplicate"]


class _Asked(NamedTuple):
    """What a call asked for, so that a later one can be seen to ask for the same."""

    same: tuple[str, str] | None
    """Tool and arguments; None where there are none: what "the next page" is depends on when it is asked."""
    path: str | None
    """What it reads; None where it is no reading of something that has a path."""
    rest: str
    """Its other arguments."""


def redundant(outputs: Sequence[Output], texts: Mapping[int, str] | None = None) -> list[Redundant]:
    """Return which outputs are redundant, superseded ones first, each kind from the oldest.

    `outputs` are in order. `texts` are long texts of the user's, by index, whose exact copies count as well.
    """
    superseded = _superseded(outputs)
    gone = set(superseded)
    left = [output for output in outputs if output.at not in gone]
    copies = _copies(left) | _exact(texts or {})
    return [
        *(Redundant(index, "superseded") for index in sorted(superseded)),
        *(Redundant(index, "duplicate") for index in sorted(copies)),
    ]


def _superseded(outputs: Sequence[Output]) -> set[int]:
    found: set[int] = set()
    latest: dict[tuple[str, str], Output] = {}
    whole: dict[str, Output] = {}
    parts: dict[tuple[str, str], Output] = {}
    for output in reversed(outputs):
        if output.call is None:
            continue
        asked = _asked(output.call)
        later = [
            latest.get(asked.same) if asked.same is not None else None,
            whole.get(asked.path) if asked.path is not None else None,
            parts.get((asked.path, asked.rest)) if asked.path is not None else None,
        ]
        if any(other is not None and _long_enough(other, output) for other in later):
            found.add(output.at)
            continue
        if asked.same is not None:
            latest.setdefault(asked.same, output)
        if asked.path is not None:
            if not asked.rest:
                whole.setdefault(asked.path, output)
            parts.setdefault((asked.path, asked.rest), output)
    return found


def _long_enough(later: Output, earlier: Output) -> bool:
    return len(later.text) >= _LEAST_LENGTH_OF_LATER * len(earlier.text)


def _asked(call: ToolCall) -> _Asked:
    try:
        given: Any = json.loads(call.arguments) if call.arguments else {}
    except ValueError:
        return _Asked((call.name, call.arguments), None, "")
    if not isinstance(given, dict) or not given:
        return _Asked((call.name, call.arguments) if given else None, None, "")
    written = json.dumps(given, sort_keys=True)
    words = {word.lower() for word in _WORD.findall(call.name)}
    if not words & _READS or words & _WRITES:
        return _Asked((call.name, written), None, "")
    paths = {name: value for name, value in given.items() if _is_path(name) and isinstance(value, str) and value}
    if len(paths) != 1:
        return _Asked((call.name, written), None, "")
    ((named, path),) = paths.items()
    rest = {name: value for name, value in given.items() if name != named and value is not None}
    return _Asked((call.name, written), path, json.dumps(rest, sort_keys=True) if rest else "")


def _is_path(name: str) -> bool:
    return name.replace("_", "").replace("-", "").lower() in _PATHS


def _exact(texts: Mapping[int, str]) -> set[int]:
    last = {text: index for index, text in texts.items()}
    return {index for index, text in texts.items() if last[text] != index}


def _copies(outputs: Sequence[Output]) -> set[int]:
    """Outputs of which nearly all stands in one later output."""
    lines = {output.at: _lines(output.text) for output in outputs if len(output.text) >= _SHORTEST}
    found: set[int] = set()
    owners: dict[str, list[int]] = {}
    for output in reversed(outputs):
        own = lines.get(output.at)
        if own is None:
            continue
        needed = _NEARLY * sum(own.values())
        longest = sorted(own, key=lambda line: (own[line], line), reverse=True)[:_LOOKED_UP]
        candidates = {owner for line in longest for owner in owners.get(line, ())}
        for candidate in sorted(candidates):
            others = lines[candidate]
            if sum(min(size, others.get(line, 0)) for line, size in own.items()) >= needed:
                found.add(output.at)
                break
        else:
            for line in own:
                known = owners.setdefault(line, [])
                if len(known) < _MOST_OWNERS:
                    known.append(output.at)
    return found


def _lines(text: str) -> dict[str, int]:
    """Characters by line of a text. What has no lines, such as JSON, is cut at its commas."""
    cut = text if text.count("\n") * 200 >= len(text) else text.replace(",", "\n")
    sizes: dict[str, int] = {}
    for line in cut.split("\n"):
        line = line.strip()
        if line:
            sizes[line] = sizes.get(line, 0) + len(line)
    return sizes

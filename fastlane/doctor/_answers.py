"""Where responses report their token counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._findings import MeasuredFact, ProviderFinding, found

if TYPE_CHECKING:
    from ..providers import ProviderFacts
    from ._session import DoctorSession

# Names of counts anywhere in `usage`; the facts on record of a provider come first.
_COUNTS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"^(?:prompt|input)_tokens$"),
    "output": re.compile(r"^(?:completion|output)_tokens$"),
    "cached": re.compile(
        r"^(?:cached_tokens|(?:prompt_)?cache_(?:hit|read)_(?:input_)?tokens|(?:\w+_)?cached_tokens)$"
    ),
    "reasoning": re.compile(r"^reasoning_tokens$"),
}


def at_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path, in which a number is an index of a list; None where there is none."""
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def count_paths(answer: Mapping[str, Any], endpoint: str, known: ProviderFacts | None) -> dict[str, str]:
    """Return where a response has its token counts: kind of token to dotted path. Only numbers count."""
    fact = known.usage.get(endpoint) if known is not None else None
    written: Mapping[Any, str] = (fact.value if fact is not None else None) or {}
    found: dict[str, str] = {kind: path for kind, path in written.items() if _is_count(at_path(answer, path))}
    usage = answer.get("usage")
    if isinstance(usage, Mapping):
        for path, value in _leaves(usage, "usage"):
            name = path.rpartition(".")[2]
            for kind, pattern in _COUNTS.items():
                if pattern.match(name) and _is_count(value) and path not in found.values():
                    found.setdefault(kind, path)
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield every value with its path. Lists are left out: they hold the answer itself."""
    for name, each in value.items():
        if not isinstance(name, str):
            continue
        here = f"{path}.{name}" if path else name
        if isinstance(each, Mapping):
            yield from _leaves(each, here)
        elif not isinstance(each, list):
            yield here, each


def judge_answers(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Judge where the responses so far report their tokens."""
    for endpoint, paths in session.count_paths.items():
        words = ", ".join(f"{kind}: {path}" for kind, path in paths.items()) or "not counted"
        fact = MeasuredFact(path=("usage", endpoint), value=dict(paths))
        yield found(
            f"tokens, {endpoint}", words, not paths and "not counted", value=paths, facts=[fact] if paths else []
        )

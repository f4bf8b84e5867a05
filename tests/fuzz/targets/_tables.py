"""Files of tables, and tables by themselves: what facts of providers and catalogs of models both have to keep to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fastlane import ConfigurationError
from tests.fuzz import mutation
from tests.fuzz.drawn import Drawn, json_value
from tests.fuzz.targets._target import holds

FILE = "drawn.toml"
_LINES = (
    "x = 1\n", '"a\\nb" = 1\n', "[x]\n", "[[x]]\n", "a.b.c = {}\n", '"" = ""\n', "x = 2026-11-22\n",
    "x = 2026-11-22T10:00:00+23:59\n",
    "x = nan\n", "x = -inf\n", "x = [[[[1]]]]\n", "x = {a = {b = {c = 1}}}\n", 'x = """\na"""\n', "x = '\\'\n",
    "\ufeff",
    'x = "\\ud800"\n', 'x = "\\U0010FFFF"\n', "x = 0x" + "f" * 30 + "\n", "x = " + "9" * 4400 + "\n", "x = 1e999\n",
    "x = " + "[" * 400 + "\n", "x = " + "[" * 400 + "]" * 400 + "\n", "a." * 400 + "b = 1\n", "x = 0000-00-00\n",
    "http2 = {" + "a." * 3_000 + "b = 1}\n", "x = " + "{a=" * 400 + "\n", "[" + "a." * 400 + "b]\n", "x = 99:99:99\n",
    "x = 1979-05-27T07:32:00.9999999Z\n", "\r",
)  # fmt: skip


def drawn_file(data: bytes) -> bytes:
    """A file as it is, or with lines put into it that say something odd."""
    draw = Drawn(data[:64])
    lines = data[64:].splitlines(keepends=True)
    for _ in range(draw.randrange(4)):
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(_LINES).encode())
    return b"".join(lines)


def drawn_tables(draw: Drawn, known: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> Any:
    """Tables that are known, with a few changes; or anything at all."""
    if draw.randrange(12) == 0:
        return {name: json_value(draw, names) for name in draw.sample(names, draw.randrange(5))}
    others = list(known)
    made = mutation.changed(draw.choice(others), draw, others)
    if draw.randrange(4) == 0 and isinstance(made, dict):
        made[draw.choice(names)] = json_value(draw, names)
    return made


def read(data: bytes) -> dict[str, Any] | None:
    """What the standard library reads in a file; None where that is no TOML."""
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return None


def check_refusal(error: ConfigurationError) -> None:
    """A refusal names the file and says what was expected, and holds nothing that came but as a quote."""
    lines = str(error).split("\n")
    holds(lines[0].startswith(f"{FILE}: "), "a refusal does not say where", lines[0])
    holds(all(line.startswith(FILE) for line in lines if line), "a line of a refusal does not say where", lines)
    said = ("expected", "unknown key", "more", "String should")
    holds(any(word in str(error) for word in said), "a refusal does not say what was expected", lines)
    holds(len(str(error)) < 20_000, "a refusal is longer than anybody reads", len(str(error)))
    holds(error.__cause__ is None or isinstance(error.__cause__, ValueError | RecursionError), "its cause quotes")


def is_kept(given: Any, found: Any, *, place: str = "") -> str | None:
    """Where something that was given is not in what came of it; None where all is."""
    if given is None or given in ("", [], (), {}):
        return None  # says nothing
    if isinstance(given, Mapping):
        if not isinstance(found, Mapping) and found is not None:
            return place or "the whole"
        for name, value in given.items():
            if missing := is_kept(value, (found or {}).get(name), place=f"{place}.{name}"):
                return missing
        return None
    if isinstance(given, list | tuple) and isinstance(found, list | tuple):
        if len(given) != len(found):
            return place
        pairs = enumerate(zip(given, found, strict=True))
        return next(filter(None, (is_kept(*pair, place=f"{place}[{at}]") for at, pair in pairs)), None)
    # Whole numbers may become floats, which have fewer digits.
    return None if given == found or (isinstance(found, float) and float(given) == found) else place

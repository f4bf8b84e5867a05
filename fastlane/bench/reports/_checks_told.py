"""Checks in few words: what many arms have in common is said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..checks import CheckResult
from ._words import listed

_FIGURES = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One thing that a check saw, once or of several arms and cells."""

    level: str
    check: str
    where: str
    sentence: str
    """Of the first of them, with its figures."""
    likewise: str
    """Of whom the same was seen, with figures of their own; empty where it was of one alone."""

    @property
    def text(self) -> str:
        """The whole as one sentence."""
        return f"{self.where}: {self.sentence}" + (f". Likewise {self.likewise}" if self.likewise else "")


def told(results: Iterable[CheckResult]) -> tuple[Told, ...]:
    """Return what was seen, with results of one check that differ in figures and names alone put together."""
    grouped: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in results:
        grouped.setdefault((result.level, result.check, _pattern(result)), []).append(result)
    return tuple(
        Told(
            level=level,
            check=check,
            where=where(alike[0]),
            sentence=alike[0].sentence,
            likewise=_others(alike),
        )
        for (level, check, _), alike in grouped.items()
    )


def names_by_level(results: Sequence[CheckResult]) -> dict[str, tuple[str, ...]]:
    """Return which checks passed, wherever they had anything to go by, and which had nothing to go by at all."""
    levels: dict[str, set[str]] = {}
    for result in results:
        levels.setdefault(result.check, set()).add(result.level)
    return {
        "not checked": tuple(check for check, seen in levels.items() if seen == {"not checked"}),
        "passed": tuple(check for check, seen in levels.items() if "passed" in seen <= {"passed", "not checked"}),
    }


def where(result: CheckResult) -> str:
    """Return what a check's result is about."""
    return ", ".join(each for each in (result.cell, result.arm) if each) or "whole run"


def _pattern(result: CheckResult) -> str:
    text = result.sentence
    for name in (result.arm, result.cell):
        text = text.replace(name, "@", 1) if name else text
    # The client's process of an arm is called by its name, the run's own "the coordinator".
    return _FIGURES.sub("#", text).replace("the coordinator", "@")


def _others(alike: Sequence[CheckResult]) -> str:
    first, others = alike[0], alike[1:]
    if not others:
        return ""
    if all(each.cell == first.cell and each.arm for each in others):
        return listed(each.arm or "" for each in others)
    cells = dict.fromkeys(each.cell for each in others if each.cell)
    return f"{len(others)} more, in {listed(cells)}" if cells else f"{len(others)} more"

"""What every benchmark prints: its figures, whether each is within reach, and under which conditions."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

Figure = float | int | None
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far one figure is meant to reach."""

    figure: str
    op: Literal["<=", ">=", "=="]
    target: float

    def held(self, figures: Mapping[str, Figure]) -> bool:
        """Whether the figure reached its target; one that could not be measured did not."""
        value = figures[self.figure]
        return value is not None and _HOLDS[self.op](value, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one run of a benchmark."""

    figures: Mapping[str, Figure]
    """By name; the name ends in the unit, a ratio in `_ratio`."""
    reach: tuple[Reach, ...]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What the figures depend on."""


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "openai": version("openai"),
        "fastlane": version("fastlane-llm"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def _line(name: str, report: Report) -> str:
    return json.dumps(
        {
            "name": name,
            "figures": dict(report.figures),
            "reach": [
                {"figure": reach.figure, "op": reach.op, "target": reach.target, "held": reach.held(report.figures)}
                for reach in report.reach
            ],
            "conditions": {**report.conditions, **_machine()},
        }
    )


def _tell(name: str, report: Report) -> None:
    table = Table("figure", "value", "reach", "held", title=name, title_justify="left")
    targets = {reach.figure: reach for reach in report.reach}
    for figure, value in report.figures.items():
        reach = targets.get(figure)
        table.add_row(
            figure,
            "unknown" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}",
            f"{reach.op} {reach.target:g}" if reach else "",
            ("yes" if reach.held(report.figures) else "[bold]NO[/]") if reach else "",
        )
    table.columns[1].justify = "right"
    console = Console()
    console.print(table)
    conditions = {**report.conditions, **_machine()}
    console.print("; ".join(f"{key}: {value}" for key, value in conditions.items()), style="dim", markup=False)
    console.print(f"What the figures mean is told by python -m benchmarks.{name} --help", style="dim", markup=False)


def main(name: str, description: str | None, measure: Callable[[bool], Report]) -> None:
    """Run one benchmark from the command line; `measure` takes whether to be quick."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: done within 50 seconds")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON instead of a table")
    options = parser.parse_args()
    report = measure(options.quick)
    if options.json:
        sys.stdout.write(_line(name, report) + "\n")
    else:
        _tell(name, report)

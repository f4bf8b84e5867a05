"""What every benchmark prints: its figures, whether each is within reach, and under which conditions."""

from __future__ import annotations

import json
import operator
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

Figure = float | int | None
_HOLDS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one run of a benchmark."""

    figures: Mapping[str, Figure]
    """By name; the name ends in the unit, a ratio in `_ratio`."""
    reach: Mapping[str, str]
    """How far figures are meant to reach, such as "<= 2.5"."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What differs from run to run."""

    def reached(self) -> list[dict[str, Any]]:
        """Return each target, and whether it is held; a figure that could not be measured holds none."""
        found = []
        for figure, bar in self.reach.items():
            op, _, target = bar.partition(" ")
            value = self.figures[figure]
            held = value is not None and _HOLDS[op](value, float(target))
            found.append({"figure": figure, "op": op, "target": float(target), "held": held})
        return found

    def all_conditions(self) -> dict[str, Any]:
        """Return the conditions, and those of the machine."""
        return {
            **self.conditions,
            "python": platform.python_version(),
            "openai": version("openai"),
            "fastlane": version("fastlane-llm"),
            "platform": f"{platform.system()} {platform.machine()}",
            "cpus": os.cpu_count(),
        }


def as_json(name: str, report: Report) -> str:
    """Return a report as one line."""
    return json.dumps(
        {
            "name": name,
            "figures": dict(report.figures),
            "reach": report.reached(),
            "conditions": report.all_conditions(),
        }
    )


def _shown(value: Figure) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _held(held: bool) -> str:
    return "yes" if held else "[bold]NO[/]"


# Processes that a benchmark starts import this module too, and print nothing: they do not load rich.


def print_report(name: str, report: Report) -> None:
    """Print all figures of one benchmark, and what they depend on."""
    from rich.console import Console
    from rich.table import Table

    table = Table("figure", "value", "reach", "held", title=name, title_justify="left")
    held = {reach["figure"]: _held(reach["held"]) for reach in report.reached()}
    for figure, value in report.figures.items():
        table.add_row(figure, _shown(value), report.reach.get(figure, ""), held.get(figure, ""))
    table.columns[1].justify = "right"
    console = Console()
    console.print(table)
    conditions = "; ".join(f"{key}: {value}" for key, value in report.all_conditions().items())
    console.print(conditions, style="dim", markup=False)
    console.print(f"python -m benchmarks {name} --help says what the figures mean", style="dim", markup=False)


def print_reach(runs: Sequence[Mapping[str, Any]]) -> None:
    """Print every target of several benchmarks, each as `as_json` has it, and how many hold."""
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "figure", "value", "reach", "held")
    for run in runs:
        for reach in run["reach"]:
            value, bar = _shown(run["figures"][reach["figure"]]), f"{reach['op']} {reach['target']:g}"
            table.add_row(run["name"], reach["figure"], value, bar, _held(reach["held"]))
    table.columns[2].justify = "right"
    held = [reach["held"] for run in runs for reach in run["reach"]]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(f"{sum(held)} of {len(held)} targets hold", highlight=False)

"""A run as plain data: every raw record, and one document of all figures."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from .._exceptions import ConfigurationError
from ._recorder import Sample
from ._run import Run
from ._statistics import Ratio
from ._summary import Summary

SCHEMA = 1
"""Raised when a field changes its meaning or goes away."""


def document(run: Run, summary: Summary) -> dict[str, Any]:
    """Return everything but the raw records, as plain JSON data; durations are in milliseconds."""
    settings = run.settings
    return {
        "schema": SCHEMA,
        "provider": settings.provider.describe(),
        "settings": {
            "arms": {arm.name: arm.description for arm in settings.arms},
            "workload": settings.workload.name,
            "workload_notes": list(settings.workload.notes),
            "conversations": len(settings.workload.conversations),
            "turns": settings.turns,
            "lanes": settings.lanes,
            "think_s": settings.think_s,
            "max_output_tokens": settings.max_output_tokens,
            "budget_s": settings.budget_s,
            "seed": settings.seed,
        },
        "machine": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "packages": _versions("openai", "httpx2", "fastlane-llm", "numpy"),
        },
        "blocks": {"planned": run.blocks_planned, "run": run.blocks_run},
        "interrupted": run.interrupted,
        "duration_s": run.duration_s,
        "cpu_share": run.cpu_share,
        "arms": [asdict(arm) for arm in summary.arms],
        "comparisons": [
            {
                **asdict(comparison),
                "typical": _ratio(comparison.typical),
                "percentiles": {name: _ratio(ratio) for name, ratio in comparison.percentiles.items()},
            }
            for comparison in summary.comparisons
        ],
        "check": None if run.check is None else asdict(run.check),
        "problems": list(summary.problems),
    }


def prepare(folder: Path) -> None:
    """Make the folder that `write` will need. Raises ConfigurationError where it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"--out needs a folder that can be written to, and {folder} is none: {error.strerror or error}"
        ) from error


def write(run: Run, summary: Summary, folder: Path) -> None:
    """Write `records.jsonl`, a line for each request, and `summary.json` into `folder`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for record in records(run):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    text = json.dumps(document(run, summary), ensure_ascii=False, indent=2)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")


def records(run: Run) -> Iterator[dict[str, Any]]:
    """Return each request's record by the client, with the provider's entries for it under "log"."""
    for sample in run.samples:
        data = {field.name: getattr(sample, field.name) for field in fields(Sample) if field.name != "record"}
        yield {
            "schema": SCHEMA,
            **data,
            "token_ns": list(sample.token_ns),
            "time_to_first_token_s": sample.time_to_first_token_s,
            "api_end_to_end_s": sample.api_end_to_end_s,
            "log": None if run.log is None else [entry.to_json() for entry in run.log if entry.tag == sample.tag],
        }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    return None if ratio is None else {**asdict(ratio), "verdict": ratio.verdict}


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

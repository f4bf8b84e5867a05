"""An experiment as plain data: its header, with its settings and what it ran on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .recorded import ArmInfo, Header

if TYPE_CHECKING:
    from ._experiment import Benchmark
    from ._provider import RunningProvider
    from .running._messages import Ready

_PLAIN = ("budget", "precision", "warm_up", "max_output_tokens", "passes", "processes", "seed")
_PACKAGES = ("openai", "httpx", "httpx2", "aiohttp", "fastlane-llm", "numpy")


def _settings_of(experiment: Benchmark) -> dict[str, Any]:
    """Return load, budget, seed and the like, which the header has no field for, as plain JSON data."""
    settings = {
        "workloads": {workload.name: len(workload.conversations) for workload in experiment.workloads},
        "load": {"kind": type(experiment.load).__name__.lower(), **asdict(experiment.load)},
        **{name: getattr(experiment, name) for name in _PLAIN},
    }
    # As a file gives it back: lists for tuples, objects for dataclasses.
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=asdict))
    return plain


def header_of(
    experiment: Benchmark, running: RunningProvider, clients: Mapping[str, Ready], *, started_at: str
) -> Header:
    """Return a run's header; `clients` are what the arms' processes said of theirs."""
    workloads = experiment.workloads
    return Header(
        name=experiment.name,
        provider=experiment.provider.describe(),
        model=running.model,
        embedded=running.embedded,
        one_way_s=running.one_way_s,
        arms=tuple(
            ArmInfo(
                name=arm.name,
                description=arm.description,
                role=experiment.role_of(arm),
                reference=experiment.reference_of(arm),
                client=clients[arm.name].client,
                plays=clients[arm.name].plays,
            )
            for arm in experiment.resolved
        ),
        cells=experiment.cells,
        metrics=tuple(experiment.metrics),
        workload=", ".join(workload.name for workload in workloads),
        workload_source="; ".join(dict.fromkeys(workload.source for workload in workloads if workload.source)),
        workload_notes=tuple(note for workload in workloads for note in workload.notes),
        settings=_settings_of(experiment),
        machine={
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "packages": _versions(),
        },
        started_at=started_at,
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

"""An experiment as plain data: its header, what resuming it must have in common, and what it ran on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from .recorded import ArmInfo, Header
from .workloads import Workload

if TYPE_CHECKING:
    from ._experiment import Benchmark
    from ._provider import RunningProvider
    from .running._messages import Ready

_WRITTEN = 3
_PACKAGES = ("openai", "httpx", "httpx2", "aiohttp", "fastlane-llm", "numpy")


def settings_of(experiment: Benchmark) -> dict[str, Any]:
    """Return what a resumed run must have in common with the one that it goes on with, as plain JSON data."""
    settings = {
        "name": experiment.name,
        "provider": experiment.provider.describe(),
        "arms": {
            arm.name: {
                "plays": arm.fingerprints,
                "client": None if arm.client is None else f"{arm.client.__module__}:{arm.client.__qualname__}",
                "asynchronous": arm.asynchronous,
            }
            for arm in experiment.resolved
        },
        "reference": next(arm.name for arm in experiment.resolved if experiment.role_of(arm) == "reference"),
        "workloads": {workload.name: _digest(workload) for workload in experiment.workloads},
        "load": {"kind": type(experiment.load).__name__.lower(), **asdict(experiment.load)},
        "metrics": experiment.metrics,
        "budget": asdict(experiment.budget),
        "precision": None if experiment.precision is None else asdict(experiment.precision),
        "warm_up": experiment.warm_up,
        "max_output_tokens": experiment.max_output_tokens,
        "turns": experiment.turns,
        "passes": experiment.passes,
        "processes": experiment.processes,
        "seed": experiment.seed,
    }
    # As a file gives it back: lists for tuples.
    plain: dict[str, Any] = json.loads(json.dumps(settings))
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
                without=arm.without,
            )
            for arm in experiment.resolved
        ),
        cells=experiment.cells,
        metrics=tuple(experiment.metrics),
        workload=", ".join(workload.name for workload in workloads),
        workload_source="; ".join(dict.fromkeys(workload.source for workload in workloads if workload.source)),
        workload_notes=tuple(note for workload in workloads for note in workload.notes),
        settings=settings_of(experiment),
        machine={
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "packages": _versions(),
        },
        started_at=started_at,
    )


def same_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigurationError, which names every difference, where a run would be resumed with other settings."""
    differences = list(_differences(before, now, ""))
    if differences:
        raise ConfigurationError(
            f"a run is resumed with the settings that it had: {'; '.join(differences[:5])}. Set them as they were, or "
            "start a new run in another folder"
        )


def _differences(before: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(before.get(key), now.get(key), f"{where}.{key}" if where else str(key))
    elif before != now:
        yield f"{where} was {before!r:.80}, and is {now!r:.80}"


def _digest(workload: Workload) -> str:
    hashed = hashlib.blake2b(digest_size=8)
    for number, conversation in enumerate(workload.conversations):
        turns = conversation.turns
        known: list[Any] = [
            conversation.name,
            [(turn.answer_tokens, turn.input_tokens, turn.arrival_s, turn.fields) for turn in turns],
        ]
        # A text that is written when it is looked at is the same for the same numbers, and long to write for thousands.
        if turns and (conversation.made is None or number < _WRITTEN):
            known += [list(turns[-1].messages), list(turns[-1].tools)]
        hashed.update(json.dumps(known, sort_keys=True, default=str).encode())
    return f"{len(workload.conversations)} conversations, {hashed.hexdigest()}"


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

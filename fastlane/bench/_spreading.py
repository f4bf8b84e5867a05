"""Over how many processes a run's users are spread where nobody has said it: as many as its slowest client needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from .load import Closed
from .running._sharding import STREAM_TOKENS_PER_S, sharding

if TYPE_CHECKING:
    from ._experiment import Benchmark

CALIBRATION_S: Final = 1.0
"""For each kind of client, beside the time to start it."""
UNCALIBRATED: Final = 2_500.0
"""Chunks per second below which no client is calibrated: the slowest that was seen takes 9,000, and half is trusted."""


def is_heavy(experiment: Benchmark) -> bool:
    """Whether a load is such that a client may be too slow for it."""
    load = experiment.load
    return isinstance(load, Closed) and max(load.users) * STREAM_TOKENS_PER_S > UNCALIBRATED


def processes_for(experiment: Benchmark) -> tuple[int, str]:
    """Return how many processes share the users, and why; the clients are calibrated for it.

    Never more than the users of the smallest cell, since a user is not divided. Raises CalibrationError.
    """
    from .running._calibration import calibrate

    measured: dict[object, float] = {}
    for arm in experiment.resolved:
        kind = (arm.client, arm.fingerprints, arm.asynchronous)
        if kind not in measured:
            measured[kind] = calibrate(arm, CALIBRATION_S)
    found = sharding(experiment.load, experiment.workloads[0], min(measured.values()))
    assert isinstance(experiment.load, Closed)
    processes = min(found.shards, *experiment.load.users)
    sentence = found.sentence
    if processes < found.shards:
        sentence += f", of which the cell of {processes} user{'s' if processes > 1 else ''} leaves {processes}"
    cores = os.cpu_count() or 1
    if processes > cores:
        sentence += f"; this machine has {cores} cores, which is too few: see the checks"
    return processes, sentence

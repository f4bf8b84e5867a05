"""Recorded runs made by hand: sound unless a test breaks them, and the same for the same seed."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastlane.bench.recorded import DEFAULT_METRICS, ArmInfo, Cell, Header, Part, RecordedRun, Role, Sample, Vitals
from fastlane.emulator import RequestLog

MS = 1_000_000
S = 1_000_000_000
ONE_WAY_S = 0.02
THINK_S = 0.1
ARMS = ("baseline", "baseline-again", "fastlane")


def a_cell(users: int = 4, **fields: Any) -> Cell:
    """One cell under a closed load."""
    return Cell(**{"name": f"chat, {users} users", "workload": "chat", "users": users, **fields})


def an_open_cell(rate: float = 5.0, **fields: Any) -> Cell:
    """One cell under an open load."""
    values = {"name": f"chat, {rate:g}/s", "workload": "chat", "load": "open", "rate": rate}
    return Cell(**{**values, **fields})


def an_arm(name: str, **fields: Any) -> ArmInfo:
    """One arm; "baseline" is the reference, and what ends in "-again" its copy."""
    role: Role = "reference" if name == "baseline" else "again" if name.endswith("-again") else "arm"
    return ArmInfo(
        **{"name": name, "description": f"{name}'s client", "role": role, "client": "openai.OpenAI", **fields}
    )


def a_run(
    *,
    arms: Sequence[str | ArmInfo] = ARMS,
    cells: Sequence[Cell] | None = None,
    pairs: int = 40,
    ratio: float | Mapping[str, float] = 0.8,
    seed: int = 0,
    time_to_first_token_s: float = 0.2,
    inter_token_s: float = 0.01,
    tokens: int = 32,
    input_tokens: int = 500,
    spread: float = 0.1,
    with_log: bool = False,
    change: Callable[[Sample], Sample] = lambda sample: sample,
    **header: Any,
) -> RecordedRun:
    """Return a run in which `ratio` is what an arm's times are of the reference's: one for all arms, or one each.

    Each cell has `pairs` blocks over its lanes after a request of each arm that warms up, the first one after a cold
    one too. Times vary log-normally by `spread`: half of the variance is a block's own, which its arms share. `change`
    gets every sample and returns what is recorded of it. `header` are further fields of the Header.
    """
    chance = random.Random(seed)
    infos = tuple(an_arm(arm) if isinstance(arm, str) else arm for arm in arms)
    all_cells = tuple(cells or (a_cell(),))
    ratios = {
        info.name: 1.0 if info.role != "arm" else ratio.get(info.name, 1.0) if isinstance(ratio, Mapping) else ratio
        for info in infos
    }
    samples: list[Sample] = []
    durations: dict[str, float] = {}
    start_ns = 1_000 * S
    for cell in all_cells:
        lanes = cell.users or 1
        free_ns = [start_ns + lane * 37 * MS for lane in range(lanes)]
        for number in range(-2 if cell is all_cells[0] else -1, pairs):
            lane = max(number, 0) % lanes
            block, part = _block_of(number, lanes)
            intended_ns = start_ns + round((number + 2) * S / cell.rate) if cell.rate else None
            at_ns = free_ns[lane] if intended_ns is None else intended_ns
            sway = chance.gauss(0, spread * math.sqrt(0.5))
            order = list(infos)
            chance.shuffle(order)
            for position, info in enumerate(order):
                factor = ratios[info.name] * math.exp(sway + chance.gauss(0, spread * math.sqrt(0.5)))
                first_ns = at_ns + round(time_to_first_token_s * factor * S)
                gap_ns = round(inter_token_s * factor * S)
                stamps = tuple(first_ns + gap_ns * index for index in range(tokens))
                sample = Sample(
                    arm=info.name,
                    tag=f"{cell.name}/{info.name}/{lane}/{block}/{part}",
                    cell=cell.name,
                    lane=lane,
                    block=block,
                    position=position,
                    conversation=f"conversation {max(number, 0) % 5}",
                    turn=1,
                    part=part,
                    intended_ns=intended_ns,
                    issued_ns=at_ns,
                    response_ns=first_ns - MS,
                    first_event_ns=first_ns,
                    first_content_ns=first_ns,
                    token_ns=stamps,
                    ended_ns=stamps[-1] + MS,
                    asked_output_tokens=tokens,
                    least_output_tokens=tokens,
                    meant_input_tokens=input_tokens,
                    input_tokens=input_tokens,
                    cached_tokens=0,
                    output_tokens=tokens,
                    reasoning_tokens=0,
                    finish_reason="length",
                )
                samples.append(change(sample))
                at_ns = sample.ended_ns if intended_ns is None else intended_ns
            free_ns[lane] = at_ns + round(THINK_S * S)
        ended_ns = max(sample.ended_ns for sample in samples if sample.cell == cell.name)
        durations[cell.name] = (ended_ns - start_ns) / S
        start_ns = ended_ns + S
    fields: dict[str, Any] = {
        "name": "a run",
        "provider": "embedded provider",
        "model": "bench",
        "embedded": True,
        "one_way_s": ONE_WAY_S,
        "arms": infos,
        "cells": all_cells,
        "metrics": DEFAULT_METRICS,
        "workload": "chat",
        "settings": {"load": {"kind": "closed", "think_s": THINK_S}},
        "started_at": "2026-01-02T03:04:05+00:00",
    }
    return RecordedRun(
        header=Header(**{**fields, **header}),
        samples=tuple(samples),
        vitals=tuple(
            some_vitals(cell=cell.name, arm=arm, duration_s=durations[cell.name])
            for cell in all_cells
            for arm in (None, *(info.name for info in infos))
        ),
        log=tuple(an_entry(sample) for sample in samples) if with_log else None,
        duration_s=sum(durations.values()),
    )


def _block_of(number: int, lanes: int) -> tuple[int, Part]:
    if number == -2:
        return -1, "cold"
    if number == -1:
        return 0, "warm-up"
    return number // lanes + 1, "measured"


def some_vitals(**fields: Any) -> Vitals:
    """Vitals of a process that has nothing to complain of."""
    duration_s: float = fields.get("duration_s", 10.0)
    values: dict[str, Any] = {
        "cell": "chat, 4 users",
        "duration_s": duration_s,
        "cpu_s": 0.1 * duration_s,
        "loop_lag_p50_ms": 0.1,
        "loop_lag_p99_ms": 0.5,
    }
    return Vitals(**{**values, **fields})


def an_entry(sample: Sample, **fields: Any) -> RequestLog:
    """What the provider's log has of a request whose tokens the client stamped 1 ms after they arrived."""
    late_ns = round(ONE_WAY_S * S) + MS
    stamps = tuple(stamp - late_ns for stamp in sample.token_ns)
    values: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(RequestLog))
    values |= {
        "sequence_number": 1,
        "request_id": f"req {sample.tag}",
        "tag": sample.tag,
        "connection_id": f"{sample.cell}/{sample.arm}/{sample.lane}",
        "connection_request_number": 1 + 10 * (sample.block + 1) + sample.position,
        "header_names": (),
        "status": 200,
        "received_ns": sample.issued_ns + late_ns,
        "token_ns": stamps,
        "first_token_ns": stamps[0] if stamps else None,
        "output_tokens": sample.output_tokens or 0,
        "prompt_tokens": sample.input_tokens or 0,
        "cached_tokens": sample.cached_tokens or 0,
        "reasoning_tokens": sample.reasoning_tokens or 0,
        "bytes_in": 2_000,
        "bytes_in_decoded": 2_000,
        "bytes_out": 9_000,
        "late": False,
    }
    return RequestLog(**{**values, **fields})


def changed(run: RecordedRun, change: Callable[[Sample], Sample]) -> RecordedRun:
    """Return the run with every sample as `change` makes it."""
    return dataclasses.replace(run, samples=tuple(map(change, run.samples)))


def with_vitals(run: RecordedRun, *, arm: str | None = "fastlane", **fields: Any) -> RecordedRun:
    """Return the run with other vitals of one arm's process; None is the process that hands the requests out."""
    vitals = (dataclasses.replace(each, **fields) if each.arm == arm else each for each in run.vitals)
    return dataclasses.replace(run, vitals=tuple(vitals))


def saturated(run: RecordedRun, *cells: str, arm: str | None = None) -> RecordedRun:
    """Return the run with a core in use by one arm's process, or by every arm's, in these cells; without any in all."""

    def used(each: Vitals) -> Vitals:
        is_meant = each.arm == arm if arm else each.arm is not None
        is_in = each.cell in (cells or (each.cell,))
        return dataclasses.replace(each, cpu_s=each.duration_s) if is_meant and is_in else each

    return dataclasses.replace(run, vitals=tuple(map(used, run.vitals)))

"""What the options of `fastlane bench` ask for, as an experiment."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from ..errors import ConfigurationError
from ..plays import Play
from ._arms import ATTRIBUTABLE, DEFAULT_ARMS
from ._experiment import Benchmark
from ._flags import PRESET, ROUND_TRIP_MS
from ._provider import Embedded, Provider, Real
from .load import Arrivals, Closed, Load, Open, Precision, RunBudget
from .recorded import DEFAULT_METRICS
from .workloads import Preset, Workload, preset as preset_workload, presets, read_workload, scenarios

_USERS = (8,)
_THINK_S = 0.1
_BUDGET_S = 45.0
"""For each cell."""
_USERS_OF_PROCESS = 45
"""Streams of 100 tokens a second: half of the 9,000 chunks a second that the slowest client was seen to take."""
_CONVERSATION_TOKENS = 96
"""Most of a conversation's recorded answers that is asked for: enough for a pace, and few enough for a short run."""


def experiment(
    *,
    arms: str | None,
    attribute: str | None,
    workload: str,
    tools: Path | None,
    conversations: int | None,
    turns: int | None,
    metrics: str | None,
    again: bool,
    max_input_tokens: int | None,
    max_output_tokens: int | None,
    users: str | None,
    think_s: float | None,
    rate: str | None,
    arrivals: str | None,
    speed: float,
    budget_s: float | None,
    max_calls: int | None,
    max_tokens: int | None,
    max_money: float | None,
    precision: float | None,
    warm_up: int | None,
    passes: int | None,
    seed: int,
    provider: Provider,
    processes: int | None,
) -> Benchmark:
    """Return the experiment. Raises ConfigurationError, in the words of the command line."""
    if arms is not None and attribute is not None:
        raise ConfigurationError("--attribute makes its own arms: leave --arms out")
    if arms is not None and ":" in arms:
        _see_working_folder()
    preset = presets().get(workload.partition("/")[0])
    runs = preset.runs if preset is not None and conversations is None and passes is None else None
    asked = workloads(workload, tools, conversations or runs, seed=seed)
    asked = tuple(each.fitting(max_input_tokens) for each in asked)
    compared = _names(metrics, "--metrics") if metrics is not None else DEFAULT_METRICS
    load = _load(asked[0], preset, users=users, think_s=think_s, rate=rate, arrivals=arrivals, speed=speed)
    cells = len(asked) * len(load.rates if isinstance(load, Open) else load.users)
    if max_output_tokens is None and (preset is None or preset.max_output_tokens is None):
        max_output_tokens = _CONVERSATION_TOKENS
    # A preset that says how often it is run ends by that.
    seconds = (None if runs is not None else _BUDGET_S * cells) if budget_s is None else budget_s or None
    return Benchmark(
        arms=() if attribute is not None else DEFAULT_ARMS if arms is None else _names(arms, "--arms"),
        attribute=_plays(attribute) if attribute is not None else (),
        workload=asked,
        load=load,
        metrics=compared,
        provider=provider,
        budget=RunBudget(seconds=seconds, calls=max_calls, tokens=max_tokens, money=max_money),
        precision=None if precision is None else Precision(metric=compared[0], half_width=precision),
        again=again,
        warm_up=1 if warm_up is None else warm_up,
        max_output_tokens=max_output_tokens,
        turns=turns,
        passes=1 if runs is not None else passes,
        processes=processes or _processes(load),
        seed=seed,
    )


def workloads(name: str, tools: Path | None, conversations: int | None, *, seed: int) -> tuple[Workload, ...]:
    """Return the preset's scenarios, one of them, or what a file holds."""
    of, slash, _ = name.partition("/")
    if of in presets() and not Path(name).exists():
        if tools is not None:
            raise ConfigurationError(f"--tools goes with a --workload file: {name!r} brings its own")
        made = (preset_workload(name, seed=seed),) if slash else scenarios(of, seed=seed)
        return tuple(each.limited(conversations) for each in made)
    path = Path(name)
    if not path.exists():
        raise ConfigurationError(
            f"no workload {name!r}: neither a file nor a preset. The presets are {', '.join(presets())}; a file has "
            'one JSON object with "messages" per line, or is a trace or a recording (docs/workloads.md)'
        )
    return (read_workload(path, tools, limit=conversations),)


def provider(
    base_url: str | None,
    model: str | None,
    *,
    api_key_env: str,
    limit_field: str,
    preset: str | None,
    rtt_ms: float | None,
    seed: int,
) -> Provider:
    """Return whom the requests go to."""
    if base_url is None:
        if model is not None:
            raise ConfigurationError("--model goes with --base-url: the embedded provider serves any model")
        round_trip_time_s = (ROUND_TRIP_MS if rtt_ms is None else rtt_ms) / 1e3
        return Embedded(preset=PRESET if preset is None else preset, round_trip_time_s=round_trip_time_s, seed=seed)
    if preset is not None or rtt_ms is not None:
        raise ConfigurationError("--preset and --rtt-ms describe the embedded provider: leave them out with --base-url")
    if model is None:
        raise ConfigurationError("--base-url needs --model: name the model that the provider is to run")
    return Real(base_url=base_url, model=model, api_key_env=api_key_env, limit_field=limit_field)


def _load(
    workload: Workload,
    preset: Preset | None,
    *,
    users: str | None,
    think_s: float | None,
    rate: str | None,
    arrivals: str | None,
    speed: float,
) -> Load:
    recorded = arrivals == "recorded"
    if speed != 1 and not recorded:
        raise ConfigurationError("--speed goes with --arrivals recorded: other arrivals have no times to shorten")
    if rate is None and not recorded:
        if arrivals is not None:
            raise ConfigurationError(f"--arrivals {arrivals} needs --rate: how many blocks a second are to arrive?")
        counts = _numbers(users, "--users", whole=True) if users is not None else preset.users if preset else _USERS
        pause = think_s if think_s is not None else _THINK_S if workload.think_s is None else workload.think_s
        return Closed(users=tuple(map(int, counts)), think_s=pause)
    if users is not None:
        raise ConfigurationError("--users and --rate are two kinds of load: leave one of them out")
    if think_s is not None:
        raise ConfigurationError(
            "--think-s goes with --users: under a rate nobody waits for an answer before asking again"
        )
    if recorded and rate is not None:
        raise ConfigurationError(
            "--arrivals recorded takes its times from the workload: leave --rate out, or use --speed"
        )
    known: dict[str, Arrivals] = {"poisson": "poisson", "constant": "constant", "recorded": "recorded"}
    if arrivals is not None and arrivals not in known:
        raise ConfigurationError(f"--arrivals takes {', '.join(known)}, got {arrivals!r}")
    if recorded:
        return Open(arrivals="recorded", speed=speed)
    assert rate is not None
    return Open(rates=_numbers(rate, "--rate"), arrivals=known[arrivals or "poisson"], speed=speed)


def _processes(load: Load) -> int:
    # A user is not divided.
    return min(math.ceil(max(load.users) / _USERS_OF_PROCESS), *load.users) if isinstance(load, Closed) else 1


def _see_working_folder() -> None:
    # A command that is installed does not find modules there by itself. Last, so that none of them stands before an
    # installed one of its name; the arms' processes are given the same path.
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


def _names(text: str, flag: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ConfigurationError(f"{flag} takes names separated by commas, and at least one is needed, got {text!r}")
    return names


def _plays(text: str) -> tuple[Play, ...]:
    names = _names(text, "--attribute")
    for name in names:
        if name not in ATTRIBUTABLE:
            raise ConfigurationError(
                f"--attribute takes plays separated by commas, of {', '.join(ATTRIBUTABLE)}, got {name!r}"
            )
    return tuple(ATTRIBUTABLE[name] for name in names)


def _numbers(text: str, flag: str, *, whole: bool = False) -> tuple[float, ...]:
    kind = "whole numbers" if whole else "numbers"
    found = []
    for part in _names(text, flag):
        try:
            number = int(part) if whole else float(part)
        except ValueError:
            raise ConfigurationError(f"{flag} takes {kind} separated by commas, such as 1,8,32, got {part!r}") from None
        if not math.isfinite(number) or number <= 0:
            raise ConfigurationError(f"{flag} takes {kind} above 0, got {part!r}")
        found.append(number)
    return tuple(found)

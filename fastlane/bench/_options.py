"""The options of `fastlane bench`: each spelled once, for the command line, the TOML file and the run."""
# ruff: noqa: RUF009 - `_option` returns a dataclass's field

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from ..errors import ConfigurationError
from ..plays import Play
from ._arms import ATTRIBUTABLE, DEFAULT_ARMS, KNOWN_ARMS
from ._experiment import Benchmark, Embedded, Provider, Real
from .load import Closed, Load, Open, RunBudget
from .recorded import DEFAULT_METRICS
from .workloads import Preset, Workload, presets, read_workload, scenarios

DEFAULT_WORKLOAD: Final = "code-review"
ROUND_TRIP_MS: Final = 40.0
PRESET: Final = "bench"

_USERS = (8,)
_THINK_S = 0.1
_BUDGET_S = 45.0
"""For each cell."""
_USERS_OF_PROCESS = 45
"""Streams of 100 tokens a second: half of the 9,000 chunks a second that the slowest client was seen to take."""
_CONVERSATION_TOKENS = 96
"""Most of a conversation's recorded answers that is requested: enough for a pace, and few enough for a short run."""

Number = TypeVar("Number", int, float)

_WHAT = "What is compared"
_LOAD = "Load"
_ENOUGH = "How much is enough"
_WHERE = "Where the requests go"
_REPORTS = "Reports"
_OPTION = "option"


def _option(panel: str | None, text: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare a dataclass's field as an option of the commands that `takes` it."""
    option = typer.Option(*names, help=text, rich_help_panel=panel, **settings)
    return field(default=default, metadata={_OPTION: option})


def _seldom(panel: str, text: str, *names: str, **settings: Any) -> Any:
    """Declare an option that only --help-all shows."""
    return _option(panel, text, *names, hidden=True, **settings)


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for option in context.command.params:
            option.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


def takes(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `**given` the options of a dataclass, beside its own parameters."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints, declared = get_type_hints(options), {each.name: each for each in fields(options)}
        *parameters, _ = inspect.signature(command, eval_str=True).parameters.values()
        # A class's own options first, then those that it inherits.
        for name in dict.fromkeys([*options.__annotations__, *hints]):
            option = {
                "annotation": Annotated[hints[name], declared[name].metadata[_OPTION]],
                "default": declared[name].default,
            }
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **option))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Which reports of a run are wanted."""

    kind: str = _option(_REPORTS, "ab: arms side by side; sweep: by users, rate and lengths.", default="ab")
    files: list[Path] | None = _option(
        _REPORTS,
        "Also write this file: .html page, .md Markdown, .csv figures, .json all figures, .xml JUnit. May be repeated.",
        "-o",
        "--output",
    )
    as_json: bool = _option(_REPORTS, "Print one JSON document instead.", "--json", default=False)
    full: bool = _option(_REPORTS, "Print every table, check and definition.", "--full", "-v", default=False)
    quiet: bool = _option(_REPORTS, "Print only what is wrong.", "--quiet", "-q", default=False)
    fail_if: list[str] | None = _option(_REPORTS, 'Exit code 1 if shown, such as "ttft > +5%". May be repeated.')
    help_all: bool = _option(
        None, "Show the other options too.", "--help-all", default=False, callback=_show_all, is_eager=True
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(ReportOptions):
    """What is run, on which provider, until when, and what is reported."""

    arms: str | None = _option(
        _WHAT,
        "Arms, separated by commas; module:name is one of your own: a list of plays, or a function of a base URL and a "
        "key that returns a client. "
        f"Known: {', '.join(KNOWN_ARMS)}. If not given: {', '.join(DEFAULT_ARMS)}.",
    )
    attribute: str | None = _option(_WHAT, "Instead of --arms: plays, by commas, whose parts in the gain you want.")
    workload: str = _option(
        _WHAT,
        f"A preset ({', '.join(presets())}), or a file of conversations as JSON lines.",
        default=DEFAULT_WORKLOAD,
        show_default=False,
    )
    conversations: int | None = _seldom(_WHAT, "Replay only the first N conversations.", min=1)
    metrics: str | None = _seldom(_WHAT, "Metrics to compare by, separated by commas.")
    again: bool = _seldom(_WHAT, "Run a copy of each reference, which shows the noise.", default=True)
    max_input_tokens: int | None = _option(_WHAT, "Leave out turns with a longer prompt (4 characters a token).", min=1)
    max_output_tokens: int | None = _seldom(_WHAT, "Most output tokens asked of a turn.", min=2)
    users: str | None = _option(_LOAD, "Users, shared by all arms; several, such as 1,8,32, are a sweep.")
    think_s: float | None = _seldom(_LOAD, "Pause of a user between turns, in seconds.", min=0)
    rate: str | None = _option(_LOAD, "Instead of --users: blocks a second, at random times; several are a sweep.")
    processes: int | None = _seldom(_LOAD, "Processes of each arm. If not given: one for each 45 users.", min=1)
    ray: str | None = _seldom(_LOAD, "Run the processes on the Ray cluster with this address (extra `ray`).")
    budget_s: float | None = _option(_ENOUGH, "Start no block after so many seconds, 0 for no limit [45 a cell].")
    max_calls: int | None = _seldom(_ENOUGH, "Most requests of all arms.", min=1)
    max_money: float | None = _option(_ENOUGH, "Most US dollars of all arms, by the catalog's prices.")
    warm_up: int = _seldom(_ENOUGH, "Requests of each arm before those that count.", default=1, min=0)
    passes: int | None = _seldom(_ENOUGH, "Most replays of the workload, each with new salts.", min=1)
    seed: int = _seldom(_ENOUGH, "Of the arms' order, the salts and the provider's draws.", default=0)
    base_url: str | None = _option(_WHERE, "A real provider, in place of the embedded one.")
    model: str | None = _option(_WHERE, "The real provider's model.")
    api_key_env: str | None = _option(_WHERE, "Variable of the real provider's key, OPENAI_API_KEY if not given.")
    limit_field: str | None = _seldom(_WHERE, "The body's field that limits answers, if not max_completion_tokens.")
    preset: str | None = _seldom(_WHERE, f"The embedded provider's behaviour; {PRESET} if not given.")
    rtt_ms: float | None = _seldom(_WHERE, f"Round trip to it, in ms; {ROUND_TRIP_MS:g} if not given.", min=0)
    kind: str = _seldom(_REPORTS, "See `fastlane bench report --help`.", default="ab")
    folder: Path | None = _option(_REPORTS, "Folder for the run. If not given: one below bench-results.")

    def experiment(self) -> Benchmark:
        """Return the options. Raises ConfigurationError, in the words of the command line."""
        if self.arms is not None and self.attribute is not None:
            raise ConfigurationError("--attribute makes its own arms: leave --arms out")
        if self.arms is not None and ":" in self.arms:
            _see_working_folder()
        provider = self._provider()
        preset = presets().get(self.workload.partition("/")[0])
        runs = preset.runs if preset is not None and self.conversations is None and self.passes is None else None
        workloads = tuple(each.fitting(self.max_input_tokens) for each in self._workloads(self.conversations or runs))
        metrics = DEFAULT_METRICS if self.metrics is None else _names(self.metrics, "--metrics")
        load = self._load(workloads[0], preset)
        cells = len(workloads) * len(load.rates if isinstance(load, Open) else load.users)
        # A preset that says how often it is run ends by that.
        seconds = (None if runs is not None else _BUDGET_S * cells) if self.budget_s is None else self.budget_s or None
        most_tokens = self.max_output_tokens
        if most_tokens is None and (preset is None or preset.max_output_tokens is None):
            most_tokens = _CONVERSATION_TOKENS
        arms = DEFAULT_ARMS if self.arms is None else _names(self.arms, "--arms")
        return Benchmark(
            arms=() if self.attribute is not None else arms,
            attribute=() if self.attribute is None else _plays(self.attribute),
            workload=workloads,
            load=load,
            metrics=metrics,
            provider=provider,
            budget=RunBudget(seconds=seconds, calls=self.max_calls, money=self.max_money),
            again=self.again,
            warm_up=self.warm_up,
            max_output_tokens=most_tokens,
            passes=1 if runs is not None else self.passes,
            processes=self.processes or (1 if self.ray is not None else _processes(load)),
            seed=self.seed,
        )

    def _workloads(self, conversations: int | None) -> tuple[Workload, ...]:
        name, path = self.workload, Path(self.workload)
        if path.exists():
            return (read_workload(path, limit=conversations),)
        if name.partition("/")[0] in presets():
            return tuple(each.limited(conversations) for each in scenarios(name, seed=self.seed))
        known = f"neither a file nor a preset. The presets are {', '.join(presets())}"
        raise ConfigurationError(f"no workload {name!r}: {known}")

    def _provider(self) -> Provider:
        if self.base_url is None:
            for flag in ("model", "api_key_env", "limit_field"):
                if getattr(self, flag) is not None:
                    flag = flag.replace("_", "-")
                    raise ConfigurationError(f"--{flag} goes with --base-url: the embedded provider takes any")
            rtt_ms = ROUND_TRIP_MS if self.rtt_ms is None else self.rtt_ms
            return Embedded(preset=self.preset or PRESET, round_trip_time_s=rtt_ms / 1e3, seed=self.seed)
        if self.preset is not None or self.rtt_ms is not None:
            raise ConfigurationError("--preset and --rtt-ms describe the embedded provider: leave out --base-url")
        if self.model is None:
            raise ConfigurationError("--base-url needs --model: name the model that the provider is to run")
        named = {"api_key_env": self.api_key_env, "limit_field": self.limit_field}
        return Real(base_url=self.base_url, model=self.model, **{name: each for name, each in named.items() if each})

    def _load(self, workload: Workload, preset: Preset | None) -> Load:
        if self.rate is not None:
            if self.users is not None or self.think_s is not None:
                raise ConfigurationError("--users and --rate are two kinds of load: leave --users and --think-s out")
            return Open(rates=_numbers(self.rate, "--rate", float))
        users = preset.users if preset is not None else _USERS
        if self.users is not None:
            users = _numbers(self.users, "--users", int)
        default_s = _THINK_S if workload.think_s is None else workload.think_s
        return Closed(users=users, think_s=default_s if self.think_s is None else self.think_s)


def _processes(load: Load) -> int:
    # A user is not divided.
    return min(math.ceil(max(load.users) / _USERS_OF_PROCESS), *load.users) if isinstance(load, Closed) else 1


def _see_working_folder() -> None:
    # An installed command does not find modules there by itself. Last, so that installed modules of the same name come
    # first; the arms' processes are given the same path.
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
    if unknown := [name for name in names if name not in ATTRIBUTABLE]:
        known = ", ".join(ATTRIBUTABLE)
        raise ConfigurationError(f"--attribute takes plays separated by commas, of {known}, got {unknown[0]!r}")
    return tuple(ATTRIBUTABLE[name] for name in names)


def _numbers(text: str, flag: str, kind: type[Number]) -> tuple[Number, ...]:
    what = "whole numbers" if kind is int else "numbers"
    found = []
    for part in _names(text, flag):
        try:
            number = kind(part)
        except ValueError:
            raise ConfigurationError(f"{flag} takes {what} separated by commas, such as 1,8,32, got {part!r}") from None
        if not math.isfinite(number) or number <= 0:
            raise ConfigurationError(f"{flag} takes {what} above 0, got {part!r}")
        found.append(number)
    return tuple(found)

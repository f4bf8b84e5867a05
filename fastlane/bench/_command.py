"""The command `fastlane bench`: its options, its exit codes, and where its output goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .._clock import now_ns
from .._exceptions import ConfigurationError, FastlaneError
from ._arms import DEFAULT_ARMS, KNOWN_ARMS, arms_named
from ._provider import Embedded, Provider, Real
from ._records import document, prepare, write
from ._report import print_report
from ._run import Run, Settings, run
from ._spans import prepare_trace, write_trace
from ._summary import summarise
from .workloads import Workload, code_review, read_workload

_BUILT_IN = "code-review"
# Wide enough for the tables where nobody reads on a terminal.
_WIDTH_WITHOUT_TERMINAL = 120
_INTERRUPTED = 130
_ROUND_TRIP_MS = 40.0
_PRESET = "bench"
# typer cuts a long default off, but wraps a help text.
_ARMS_HELP = (
    f"Arms to compare, separated by commas. Known: {', '.join(KNOWN_ARMS)}. If not given: {', '.join(DEFAULT_ARMS)}."
)


def bench(
    arms: Annotated[str, typer.Option(help=_ARMS_HELP, show_default=False)] = ",".join(DEFAULT_ARMS),
    workload: Annotated[
        str, typer.Option(help='"code-review", or a JSONL file of conversations: {"messages": […], "tools": […]}.')
    ] = _BUILT_IN,
    tools: Annotated[
        Path | None, typer.Option(help="JSON file with the tools of all conversations of --workload.")
    ] = None,
    conversations: Annotated[int | None, typer.Option(min=1, help="Replay only the first N conversations.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Replay only the first N turns of each.")] = None,
    lanes: Annotated[int, typer.Option(min=1, help="Simulated users at the same time.")] = 8,
    think_s: Annotated[float, typer.Option(min=0, help="Pause between the turns of a lane, in seconds.")] = 0.1,
    max_output_tokens: Annotated[int, typer.Option(min=2, help="Most output tokens asked of a turn.")] = 96,
    budget_s: Annotated[float, typer.Option(help="Start no block after this many seconds.")] = 45.0,
    seed: Annotated[int, typer.Option(help="Of the arms' order, the salts and the provider's draws.")] = 0,
    rtt_ms: Annotated[
        float | None,
        typer.Option(min=0, help=f"Round trip to the embedded provider, in ms; {_ROUND_TRIP_MS:g} if not given."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Behaviour of the embedded provider, {_PRESET} if not given; see `fastlane emulator --list-presets`."
        ),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="A real provider, in place of the embedded one.")] = None,
    model: Annotated[str | None, typer.Option(help="The real provider's model.")] = None,
    api_key_env: Annotated[
        str, typer.Option(help="Environment variable that holds the real provider's key.")
    ] = "OPENAI_API_KEY",
    out: Annotated[Path | None, typer.Option(help="Folder for records.jsonl and summary.json.")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="File for the spans of every request: `fastlane trace view FILE` shows the arms side by side."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Compare the stock client with fastlane on real conversations: no API key, no network.

    Ctrl-C ends a run early and reports what was finished; a second one ends it at once.

    Exit codes: 0 for a sound run, 1 for one whose figures must not be used or were not kept, 2 for input that
    cannot work, 130 for an interrupted one.
    """
    errors = Console(stderr=True, soft_wrap=True)
    try:
        settings = Settings(
            arms=arms_named([name.strip() for name in arms.split(",") if name.strip()]),
            workload=_workload(workload, tools).limited(conversations),
            provider=_provider(base_url, model, api_key_env, preset, rtt_ms, seed),
            turns=turns,
            lanes=lanes,
            think_s=think_s,
            max_output_tokens=max_output_tokens,
            budget_s=budget_s,
            seed=seed,
        )
        if out is not None:
            prepare(out)
        if trace is not None:
            prepare_trace(trace)
        code = _report(_run_with_progress(settings, errors), out, trace, errors, as_json=as_json)
    except ConfigurationError as error:
        _complain(errors, str(error))
        raise typer.Exit(2) from None
    except FastlaneError as error:
        _complain(errors, str(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _complain(errors, "interrupted; nothing more is reported or kept")
        raise typer.Exit(_INTERRUPTED) from None
    if code:
        raise typer.Exit(code)


def _report(result: Run, out: Path | None, trace: Path | None, errors: Console, *, as_json: bool) -> int:
    """Print a run's figures, keep them, and return the exit code."""
    summary = summarise(result)
    problems = list(summary.problems)
    try:
        if as_json:
            typer.echo(json.dumps(document(result, summary), ensure_ascii=False, indent=2))
        else:
            console = Console()
            print_report(result, summary, console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL))
    finally:
        # Whatever becomes of the printing (`| head` closes its pipe), the records are what cannot be had again.
        if out is not None:
            try:
                write(result, summary, out)
            except OSError as error:
                problems.append(f"the records could not be written to {out}: {error.strerror or error}")
        if trace is not None:
            try:
                write_trace(result, trace)
            except OSError as error:
                problems.append(f"the spans could not be written to {trace}: {error.strerror or error}")
    for problem in problems:
        _complain(errors, problem)
    if result.interrupted:
        _complain(errors, "interrupted: the figures are of what was finished")
        return _INTERRUPTED
    return 1 if problems else 0


def _complain(errors: Console, sentence: str) -> None:
    errors.print(f"fastlane bench: {sentence}", style="red", markup=False, highlight=False)


def _workload(name: str, tools: Path | None) -> Workload:
    if name != _BUILT_IN:
        path = Path(name)
        if not path.exists():
            raise ConfigurationError(
                f"no workload {name!r}: neither a file nor built in. Built in is {_BUILT_IN!r}; a file has one JSON "
                'object with "messages" per line'
            )
        return read_workload(path, tools)
    if tools is not None:
        raise ConfigurationError(f"--tools goes with a --workload file: {_BUILT_IN!r} brings its own tools")
    return code_review()


def _provider(
    base_url: str | None, model: str | None, api_key_env: str, preset: str | None, rtt_ms: float | None, seed: int
) -> Provider:
    if base_url is None:
        if model is not None:
            raise ConfigurationError("--model goes with --base-url: the embedded provider serves any model")
        round_trip_time_s = (_ROUND_TRIP_MS if rtt_ms is None else rtt_ms) / 1e3
        return Embedded(preset=_PRESET if preset is None else preset, round_trip_time_s=round_trip_time_s, seed=seed)
    if preset is not None or rtt_ms is not None:
        raise ConfigurationError("--preset and --rtt-ms describe the embedded provider: leave them out with --base-url")
    if model is None:
        raise ConfigurationError("--base-url needs --model: name the model that the provider is to run")
    return Real(base_url=base_url, model=model, api_key_env=api_key_env)


def _run_with_progress(settings: Settings, console: Console) -> Run:
    what = f"{len(settings.arms)} arms, {settings.lanes} lanes, at most {settings.budget_s:g} s of new blocks"
    if not console.is_terminal:
        console.print(f"fastlane bench: {settings.provider.describe()}; {what}", markup=False, highlight=False)
        return run(settings)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[blocks]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, blocks="starting")
        first_ns: list[int] = []

        def on_block(done: int, planned: int) -> None:
            # The run ends with the workload or with the budget: the bar shows the one that is nearer.
            first_ns[:] = first_ns or [now_ns()]
            spent = (now_ns() - first_ns[0]) / 1e9 / settings.budget_s if settings.budget_s else 1.0
            share = min(1.0, max(done / planned, spent))
            progress.update(task, completed=share, total=1.0, blocks=f"{done} blocks")

        return run(settings, on_block=on_block)

"""The command `fastlane bench`: from its options to a run, its report and its exit code."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console

from ..errors import ConfigurationError, FastlaneError
from . import _asked, _flags as flags
from ._experiment import Benchmark
from ._outputs import Outputs, publish
from ._provider import Embedded
from ._spreading import CALIBRATION_S, is_heavy, processes_for
from .checks import check
from .findings import find
from .recorded import RecordedRun, read_run
from .reports import LiveProgress, compare, print_terminal, report_document
from .reports._words import listed

_INTERRUPTED = 130
_GOES_WITH: Final = (
    ("--quick", "--self-test", "a shorter run has a smaller --budget-s"),
    ("--against", "--from", "both name folders of runs that were kept"),
    ("--resume", "--out", "name the folder of the run to go on with"),
    ("--api-key-env", "--base-url", "the embedded provider takes any key"),
    ("--limit-field", "--base-url", "the embedded provider knows both fields"),
)
_REPORTED: Final = frozenset(
    ("--report", "--html", "--markdown", "--csv", "--junit", "--trace", "--json", "--target", "--fail-if")
)
_TAKES_ONLY: Final = (
    ("--self-test", {"--quick", "--json"}, "--self-test takes only --json and --quick"),
    ("--against", {"--from", "--json"}, "--against is printed on the terminal, or as --json"),
    ("--from", _REPORTED | {"--against"}, "--from reports on a run that was kept"),
)
# The self-test's table is wide, and a file has no edge.
_WIDTH_WITHOUT_TERMINAL = 160


def bench(
    context: typer.Context,
    arms: flags.Arms = None,
    attribute: flags.Attribute = None,
    workload: flags.WorkloadName = flags.DEFAULT_WORKLOAD,
    tools: flags.Tools = None,
    conversations: flags.Conversations = None,
    turns: flags.Turns = None,
    metrics: flags.Metrics = None,
    again: flags.Again = True,
    max_output_tokens: flags.MaxOutputTokens = None,
    users: flags.Users = None,
    think_s: flags.ThinkS = None,
    rate: flags.Rate = None,
    arrivals: flags.ArrivalsName = None,
    speed: flags.Speed = 1.0,
    budget_s: flags.BudgetS = None,
    max_calls: flags.MaxCalls = None,
    max_tokens: flags.MaxTokens = None,
    max_money: flags.MaxMoney = None,
    precision: flags.PrecisionShare = None,
    warm_up: flags.WarmUp = None,
    passes: flags.Passes = None,
    seed: flags.Seed = 0,
    base_url: flags.BaseUrl = None,
    model: flags.Model = None,
    api_key_env: flags.ApiKeyEnv = "OPENAI_API_KEY",
    limit_field: flags.LimitField = "max_completion_tokens",
    preset: flags.Preset = None,
    rtt_ms: flags.RttMs = None,
    processes: flags.Processes = None,
    ray: flags.Ray = None,
    report: flags.ReportKind = "ab",
    from_: flags.From = None,
    against: flags.Against = None,
    out: flags.Out = None,
    resume: flags.Resume = False,
    html: flags.Html = None,
    markdown: flags.Markdown = None,
    csv: flags.Csv = None,
    junit: flags.Junit = None,
    trace: flags.Trace = None,
    as_json: flags.AsJson = False,
    target: flags.Targets = None,
    fail_if: flags.FailIf = None,
    self_test: flags.SelfTest = False,
    quick: flags.Quick = False,
) -> None:
    """Compare clients, plays and loads on real conversations, honestly: no API key, no network.

    Ctrl-C ends a run early and reports what was finished; a second one ends it at once.

    Exit codes: 0 for a sound run, 1 for one whose figures must not be used or were not kept, or of which a --fail-if
    came true, 2 for input that cannot work, 130 for an interrupted one.
    """
    errors = Console(stderr=True, soft_wrap=True)
    complain = partial(_complain, errors)
    try:
        _refuse_ignored(_given(context))
        outputs = Outputs(
            kind=report,  # type: ignore[arg-type]  # It says itself what is none.
            out=out,
            html=html,
            markdown=markdown,
            csv=csv,
            junit=junit,
            trace=trace,
            as_json=as_json,
            targets=target or (),
            fail_if=fail_if or (),
        )
        if self_test:
            raise typer.Exit(_self_test(errors, quick=quick, as_json=as_json))
        if from_ is not None:
            outputs.prepare()
            code = _again(from_, against, outputs, complain)
        else:
            asked = partial(
                _asked.experiment,
                arms=arms,
                attribute=attribute,
                workload=workload,
                tools=tools,
                conversations=conversations,
                turns=turns,
                metrics=metrics,
                again=again,
                max_output_tokens=max_output_tokens,
                users=users,
                think_s=think_s,
                rate=rate,
                arrivals=arrivals,
                speed=speed,
                budget_s=budget_s,
                max_calls=max_calls,
                max_tokens=max_tokens,
                max_money=max_money,
                precision=precision,
                warm_up=warm_up,
                passes=passes,
                seed=seed,
                provider=_asked.provider(
                    base_url,
                    model,
                    api_key_env=api_key_env,
                    limit_field=limit_field,
                    preset=preset,
                    rtt_ms=rtt_ms,
                    seed=seed,
                ),
            )
            experiment = asked(processes=processes or 1)
            outputs.prepare()
            if processes is None and ray is None and is_heavy(experiment):
                count, why = processes_for(experiment)
                errors.print(f"fastlane bench: {why}", markup=False, emoji=False, highlight=False)
                experiment = asked(processes=count, calibration_s=CALIBRATION_S)
            recorded = _run(experiment, ray, out, errors, resume=resume)
            code = publish(recorded, outputs, complain)
            if recorded.ended == "interrupted":
                complain("interrupted: the figures are of what was finished")
                code = _INTERRUPTED
    except ConfigurationError as error:
        complain(str(error))
        raise typer.Exit(2) from None
    except FastlaneError as error:
        complain(str(error))
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        kept = "" if out is None else f": what {out} holds already can be gone on with by --resume"
        complain(f"a file could not be read or written ({error}){kept}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("interrupted; nothing more is reported or kept")
        raise typer.Exit(_INTERRUPTED) from None
    if code:
        raise typer.Exit(code)


def _given(context: typer.Context) -> set[str]:
    """Return the options that the command line names, each by its first flag."""
    sources = {option.opts[0]: context.get_parameter_source(option.name or "") for option in context.command.params}
    # typer may bring its own copy of click, whose enumeration is another one than click's.
    return {flag for flag, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _refuse_ignored(given: set[str]) -> None:
    """Raise ConfigurationError where an option would be ignored."""
    for option, taken, why in _TAKES_ONLY:
        if option in given and (ignored := sorted(given - taken - {option})):
            raise ConfigurationError(f"{why}: leave {listed(ignored)} out")
    for option, needed, why in _GOES_WITH:
        if option in given and needed not in given:
            raise ConfigurationError(f"{option} goes with {needed}: {why}")


def _run(experiment: Benchmark, ray: str | None, out: Path | None, errors: Console, *, resume: bool) -> RecordedRun:
    what = f"{len(experiment.resolved)} arms, {len(experiment.cells)} cell{'s' if len(experiment.cells) > 1 else ''}"
    with _members(experiment, ray) as member_of:
        if not errors.is_terminal:
            said = f"fastlane bench: {experiment.provider.describe()}; {what}"
            errors.print(said, markup=False, emoji=False, highlight=False)
            return experiment.run(out, resume=resume, member_of=member_of)
        with LiveProgress(errors) as live:
            return experiment.run(out, resume=resume, on_progress=live, member_of=member_of)


def _members(experiment: Benchmark, ray: str | None) -> Any:
    if ray is None:
        return nullcontext()
    from .running._ray import ray_members

    return ray_members(ray, shards=experiment.processes, loopback_only=isinstance(experiment.provider, Embedded))


def _again(folder: Path, against: Path | None, outputs: Outputs, complain: Any) -> int:
    """Report on a run that was kept, or on two beside each other."""
    recorded = read_run(folder)
    if against is None:
        return publish(recorded, outputs, complain)
    other = read_run(against)
    findings = find(recorded), find(other)
    checked = check(recorded, findings[0]), check(other, findings[1])
    shown = compare(recorded, other, findings=findings, checked=checked, names=(folder.name, against.name))
    if outputs.as_json:
        typer.echo(json.dumps(report_document(shown), ensure_ascii=False, indent=2))
    else:
        print_terminal(shown, Console())
    return 0


def _self_test(errors: Console, *, quick: bool, as_json: bool) -> int:
    """Hold the harness against a server that stamps what it sends; its figures are no reason to fail."""
    from .self_test import print_self_test, run

    result = run(quick=quick, on_progress=lambda what: errors.print(what, style="dim", markup=False, highlight=False))
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        console = Console()
        print_self_test(result, console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL))
    return 0


def _complain(errors: Console, sentence: str) -> None:
    errors.print(f"fastlane bench: {sentence}", style="red", markup=False, emoji=False, highlight=False)

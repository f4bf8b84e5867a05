"""The commands `fastlane bench run`, `report`, `compare` and `self-test`."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from .._clock import wall_ns
from ..errors import ConfigurationError, MissingExtraError
from . import reports
from ._experiment import Benchmark, Embedded
from ._formatting import counted
from ._options import ReportOptions, RunOptions, takes
from .checks import check
from .findings import find
from .recorded import FAILED_ALIKE, RecordedRun, Sample, read_run, see_writable

_KINDS_OF_FILES: Final = {".html": "page", ".md": "Markdown", ".csv": "figures", ".json": "document", ".xml": "JUnit"}
PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"


def prepare(options: ReportOptions) -> None:
    """See that the reports can be made and written, before anything is sent, or raise ConfigurationError."""
    if options.kind not in reports.KINDS:
        raise ConfigurationError(f"--kind takes {', '.join(reports.KINDS)}, got {options.kind!r}")
    for text in options.fail_if or ():
        reports.parse_fail_if(text)
    if options.as_json + options.full + options.quiet > 1:
        raise ConfigurationError("--json, --full and --quiet are three ways to print: give one of them")
    for path in options.files or ():
        if path.suffix not in _KINDS_OF_FILES:
            raise ConfigurationError(f"-o takes files that end with {', '.join(_KINDS_OF_FILES)}, got {str(path)!r}")
        if path.is_dir():
            raise ConfigurationError(f"-o takes a file, and {path} is a folder")
        see_writable(path.parent, "-o")
        if path.suffix == ".html" and not has_charts():
            raise MissingExtraError("charts", "altair")


def has_charts() -> bool:
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def publish(recorded: RecordedRun, options: ReportOptions, folder: Path, new_files: Iterable[Path] = ()) -> int:
    """Print a run's report, and write files. Return 0 if all figures may be used and no rule came true, else 1."""
    findings = find(recorded)
    checked = check(recorded, findings)
    run = recorded, findings, checked
    judgements = reports.judge(*run, [reports.parse_fail_if(text) for text in options.fail_if or ()])
    shown = reports.report(options.kind, *run, rules=judgements)
    problems = list(dict.fromkeys(each.sentence for each in checked.refusals()))
    texts: dict[str, Callable[[], str]] = {
        ".html": lambda: reports.page(shown, *run),
        ".md": lambda: reports.markdown(shown),
        ".json": lambda: as_json_text(reports.document(*run)),
        ".xml": lambda: reports.junit(recorded, checked, judgements),
    }
    files = [*(options.files or ()), *new_files]
    # Wide enough for the tables if stdout is no terminal.
    console = _console(120)
    try:
        if options.as_json:
            typer.echo(texts[".json"]())
        elif options.full or (options.kind != "ab" and not options.quiet):
            reports.print_terminal(shown, console)
        elif not options.quiet:
            has_page = folder / PAGE in files or (folder / PAGE).exists()
            for line in reports.screen(*run, folder=folder, page=has_page):
                console.print(line, soft_wrap=True)
    finally:
        # Whatever becomes of the printing (`| head` closes its pipe), the files are complete.
        for path in files:
            try:
                if path.suffix == ".csv":
                    reports.write_csv(path, *run)
                else:
                    path.write_text(texts[path.suffix]() + "\n", encoding="utf-8")
            except OSError as error:
                what = _KINDS_OF_FILES[path.suffix]
                problems.append(f"the {what} could not be written to {path}: {error.strerror or error}")
    for problem in problems:
        _complain(problem)
    for each in judgements:
        if each.result != "passed":
            _complain(f"--fail-if {each.rule.text!r}, {each.arm}, {each.cell}: {each.sentence}")
    return 1 if problems or reports.fails(judgements) else 0


def _console(width_without_terminal: int) -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=width_without_terminal)


def as_json_text(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2)


bench = typer.Typer(
    name="bench",
    help="Compare clients, plays and loads on real conversations, honestly: no API key, no network.\n\n"
    "Exit codes: 0 for a sound run, 1 for one whose figures must not be used or were not kept, or of which a --fail-if "
    "came true, 2 for input that cannot work, 130 for an interrupted one.",
    no_args_is_help=True,
)

RESULTS: Final = Path("bench-results")
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
_INTERRUPTED = 130
# "This model's maximum context length is 4096 tokens", "context window of 8192 tokens", "(4096 > 2048 context size)".
_CONTEXT: Final = re.compile(r"context (?:length|window|size)\D{0,30}(\d{3,})", re.IGNORECASE)
_REMEDIES: Final = {
    "401": "the key in --api-key-env is not accepted: set the provider's own",
    "403": "the key in --api-key-env is not allowed to use the model: name another --model or key",
    "404": "name a --model that the provider has, and a --base-url that ends as its documentation says, often in /v1",
    "429": "the provider's limits are lower than this load: use fewer --users, or a --rate",
}


@bench.callback()
def _settings(context: typer.Context) -> None:
    """Take the options of `run` that [tool.fastlane.bench] of ./pyproject.toml sets."""
    try:
        tables = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return  # Other programs that read the file say what is wrong with it.
    table = tables.get("fastlane", {}).get("bench", {})
    command: Any = context.command.get_command(context, "run")  # type: ignore[attr-defined]
    known = {each.opts[-1].lstrip("-"): each.name for each in command.params if each.name not in ("help", "help_all")}
    if unknown := [name for name in table if name not in known]:
        raise ConfigurationError(f"[tool.fastlane.bench] has no option {unknown[0]!r}; it has {', '.join(known)}")
    context.default_map = {"run": {known[name]: value for name, value in table.items()}}


def remedy(samples: Iterable[Sample]) -> str:
    found = Counter((sample.error, sample.error_message or "") for sample in samples if sample.error is not None)
    ((error, message), count), *_ = found.most_common(1)
    said = f"{count} requests failed alike, and the run was ended: {error}: {message}"
    context = _CONTEXT.search(message)
    if context is not None or "context_length_exceeded" in message:
        fits = f" {int(context[1]) * 3 // 4}" if context is not None else " N"
        return f"{said}. The model's context is smaller than the workload: give --max-input-tokens{fits}"
    status = (error or "").rpartition(" ")[2]
    return f"{said}. {_REMEDIES[status].capitalize()}" if status in _REMEDIES else said


@bench.command()
@takes(RunOptions)
def run(**given: Any) -> None:
    """Run a comparison, print what it shows, and keep all of it in a folder.

    Ctrl-C ends a run early and reports what was finished; a second one ends it at once. Options can also be set in
    the table tool.fastlane.bench of ./pyproject.toml.
    """
    options = RunOptions(**given)
    experiment = options.experiment()
    when = datetime.fromtimestamp(wall_ns() / 1e9, UTC).strftime("%Y%m%d-%H%M%S")
    folder = options.folder or RESULTS / f"{when}-{Path(options.workload).stem}"
    prepare(options)
    see_writable(folder, "--folder")
    try:
        recorded = _run(experiment, options, folder)
        new_files = [folder / SUMMARY, *([folder / PAGE] if has_charts() else [])]
        code = publish(recorded, options, folder, new_files)
    except KeyboardInterrupt:
        _complain("interrupted; nothing more is reported or kept")
        raise typer.Exit(_INTERRUPTED) from None
    if recorded.ended == "interrupted":
        _complain("interrupted: the figures are of what was finished")
        code = _INTERRUPTED
    elif recorded.ended == FAILED_ALIKE:
        _complain(remedy(recorded.measured()))
        code = 1
    raise typer.Exit(code)


@bench.command(name="report")
@takes(ReportOptions)
def report_command(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)], **given: Any
) -> None:
    """Report again on a run that was kept; nothing is sent."""
    options = ReportOptions(**given)
    prepare(options)
    raise typer.Exit(publish(read_run(folder), options, folder))


@bench.command()
def compare(
    folder: Annotated[Path, typer.Argument(help="The folder of one run.", show_default=False)],
    other: Annotated[Path, typer.Argument(help="The folder of another.", show_default=False)],
    as_json: _AsJson = False,
) -> None:
    """Set two runs beside each other, unpaired."""
    runs = read_run(folder), read_run(other)
    findings = find(runs[0]), find(runs[1])
    checked = check(runs[0], findings[0]), check(runs[1], findings[1])
    shown = reports.compare(*runs, findings=findings, checked=checked, names=(folder.name, other.name))
    if as_json:
        typer.echo(as_json_text(reports.plain(shown)))
    else:
        reports.print_terminal(shown, Console())


@bench.command(name="self-test")
def self_test_command(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of a minute in place of one.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Run the bench against the embedded provider, and say how far its figures are from the provider's log."""
    from ._self_test import print_self_test, self_test

    found = self_test(quick=quick)
    if as_json:
        typer.echo(as_json_text(found))
    else:
        print_self_test(found, _console(160))


def _run(experiment: Benchmark, options: RunOptions, folder: Path) -> RecordedRun:
    shards: Any = nullcontext()
    if options.ray is not None:
        from .running._ray import ray_shards

        is_embedded = isinstance(experiment.provider, Embedded)
        shards = ray_shards(options.ray, shards=experiment.processes, loopback_only=is_embedded)
    errors = Console(stderr=True)
    with shards as make_shard:
        if errors.is_terminal and not options.quiet:
            with reports.LiveProgress(errors) as live:
                return experiment.run(folder, on_progress=live, make_shard=make_shard)
        if not options.quiet:
            cells = counted(len(experiment.cells), "cell")
            said = f"{experiment.provider.describe()}; {len(experiment.resolved)} arms, {cells}"
            typer.echo(f"fastlane bench: {said}", err=True)
        return experiment.run(folder, make_shard=make_shard)


def _complain(sentence: str) -> None:
    typer.secho(f"fastlane bench: {sentence}", fg="red", err=True)

"""Where a run's reports go: the terminal, files, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import typer
from rich.console import Console

from ..errors import ConfigurationError, MissingExtraError
from ._spans import prepare_trace, write_trace
from .checks import Checked, check
from .findings import Findings, find
from .recorded import RecordedRun
from .reports import (
    KINDS,
    Kind,
    RunReport,
    document,
    fails,
    judge,
    junit,
    markdown,
    parse_fail_if,
    parse_target,
    print_terminal,
    report,
    write_csv,
)

# Wide enough for the tables where nobody reads on a terminal.
_WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Which reports are wanted, and where. Raises ConfigurationError for a place that cannot be written to."""

    kind: Kind = "ab"
    out: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    junit: Path | None = None
    trace: Path | None = None
    as_json: bool = False
    targets: Sequence[str] = ()
    fail_if: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"--report takes {', '.join(KINDS)}, got {self.kind!r}")
        for text in self.targets:
            parse_target(text)
        for text in self.fail_if:
            parse_fail_if(text)
        if self.targets and self.kind != "lengths":
            raise ConfigurationError(f"--target goes with --report lengths, not with {self.kind!r}")

    def prepare(self) -> None:
        """See that every place can be written to, before anything is sent."""
        if self.out is not None:
            _writable("--out", self.out)
        for flag in ("html", "markdown", "csv", "junit"):
            path: Path | None = getattr(self, flag)
            if path is not None:
                _writable(f"--{flag}", path.parent)
                if path.is_dir():
                    raise ConfigurationError(f"--{flag} takes a file, and {path} is a folder")
        if self.html is not None:
            try:
                import altair as alt  # noqa: F401
                import vl_convert  # noqa: F401
            except ModuleNotFoundError as error:
                raise MissingExtraError("charts", error.name or "altair") from error
        if self.trace is not None:
            prepare_trace(self.trace)


def publish(recorded: RecordedRun, outputs: Outputs, complain: Callable[[str], None]) -> int:
    """Print a run's report and write what was asked for; return the exit code.

    0 where every cell's figures may be used and no rule came true, else 1.
    """
    findings = find(recorded)
    checked = check(recorded, findings)
    targets = [parse_target(text) for text in outputs.targets]
    shown = report(outputs.kind, recorded, findings, checked, targets=targets)
    judgements = judge(recorded, findings, checked, [parse_fail_if(text) for text in outputs.fail_if])
    problems = list(dict.fromkeys(each.sentence for each in checked.refusals()))
    try:
        if outputs.as_json:
            typer.echo(json.dumps(document(recorded, findings, checked, [shown]), ensure_ascii=False, indent=2))
        else:
            console = Console()
            print_terminal(shown, console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL))
    finally:
        # Whatever becomes of the printing (`| head` closes its pipe), the files are what was asked for.
        for what, path, write in _writers(recorded, findings, checked, shown, outputs):
            try:
                write(path)
            except OSError as error:
                problems.append(f"the {what} could not be written to {path}: {error.strerror or error}")
        if outputs.junit is not None:
            outputs.junit.write_text(junit(recorded, checked, judgements), encoding="utf-8")
    for problem in problems:
        complain(problem)
    for judgement in judgements:
        if judgement.result != "passed":
            complain(f"--fail-if {judgement.rule.text!r}, {judgement.arm}, {judgement.cell}: {judgement.sentence}")
    return 1 if problems or fails(judgements) else 0


def _writers(
    recorded: RecordedRun, findings: Findings, checked: Checked, shown: RunReport, outputs: Outputs
) -> list[tuple[str, Path, Callable[[Path], None]]]:
    def as_markdown(path: Path) -> None:
        path.write_text(markdown(shown), encoding="utf-8")

    def as_page(path: Path) -> None:
        from .reports._page import page

        path.write_text(page(shown, recorded, findings, checked), encoding="utf-8")

    def as_csv(path: Path) -> None:
        write_csv(path, recorded, findings, checked)

    def as_spans(path: Path) -> None:
        write_trace(recorded, path)

    def as_document(path: Path) -> None:
        text = json.dumps(document(recorded, findings, checked, [shown]), ensure_ascii=False, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    wanted = [
        ("page", outputs.html, as_page),
        ("Markdown", outputs.markdown, as_markdown),
        ("figures", outputs.csv, as_csv),
        ("spans", outputs.trace, as_spans),
        ("summary", None if outputs.out is None else outputs.out / "summary.json", as_document),
    ]
    return [(what, path, write) for what, path, write in wanted if path is not None]


def _writable(flag: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{flag} needs a folder that can be written to, and {folder} is none: {error.strerror or error}"
        ) from error

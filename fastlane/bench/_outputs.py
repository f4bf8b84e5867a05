"""Where a run's reports go: the terminal, files, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, Literal

import typer
from rich.console import Console

from ..errors import ConfigurationError, MissingExtraError
from .checks import check
from .findings import find
from .recorded import RecordedRun
from .reports import (
    KINDS,
    Kind,
    document,
    fails,
    judge,
    junit,
    markdown,
    page,
    parse_fail_if,
    parse_target,
    print_terminal,
    report,
    screen,
    write_csv,
)

# Wide enough for the tables where nobody reads on a terminal.
_WIDTH_WITHOUT_TERMINAL = 120
_KINDS_OF_FILES: Final = {
    ".html": "page",
    ".md": "Markdown",
    ".csv": "figures",
    ".json": "document",
    ".xml": "JUnit",
}
PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Which reports are wanted, and where. Raises ConfigurationError for a place that cannot be written to."""

    kind: Kind = "ab"
    folder: Path | None = None
    """The run's folder, which gets a page and a summary."""
    is_new: bool = False
    """Whether the folder is written to: the run has just been made."""
    files: Sequence[Path] = ()
    show: Literal["screen", "full", "json", "nothing"] = "screen"
    targets: Sequence[str] = ()
    fail_if: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"--kind takes {', '.join(KINDS)}, got {self.kind!r}")
        for text in self.targets:
            parse_target(text)
        for text in self.fail_if:
            parse_fail_if(text)
        if self.targets and self.kind != "lengths":
            raise ConfigurationError(f"--target goes with --kind lengths, not with {self.kind!r}")
        for path in self.files:
            if path.suffix not in _KINDS_OF_FILES:
                raise ConfigurationError(
                    f"-o takes files that end with {', '.join(_KINDS_OF_FILES)}, got {str(path)!r}"
                )

    def prepare(self) -> None:
        """See that every place can be written to, before anything is sent."""
        if self.is_new and self.folder is not None:
            _writable("--folder", self.folder)
        for path in self.files:
            if path.is_dir():
                raise ConfigurationError(f"-o takes a file, and {path} is a folder")
            _writable("-o", path.parent)
            if path.suffix == ".html" and not has_charts():
                raise MissingExtraError("charts", "altair")


def has_charts() -> bool:
    """Return whether what draws charts is installed."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


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
    texts: dict[str, Callable[[], str]] = {
        "page": lambda: page(shown, recorded, findings, checked),
        "Markdown": lambda: markdown(shown),
        "document": lambda: as_json_text(document(recorded, findings, checked, [shown])),
        "JUnit": lambda: junit(recorded, checked, judgements),
    }
    files = list(outputs.files)
    if outputs.is_new and outputs.folder is not None:
        files += [outputs.folder / SUMMARY, *([outputs.folder / PAGE] if has_charts() else [])]
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    try:
        if outputs.show == "json":
            typer.echo(texts["document"]())
        elif outputs.show == "full" or (outputs.show == "screen" and outputs.kind != "ab"):
            print_terminal(shown, console)
        elif outputs.show == "screen":
            has_page = outputs.folder is not None and (
                outputs.folder / PAGE in files or (outputs.folder / PAGE).exists()
            )
            for line in screen(recorded, findings, checked, folder=outputs.folder, page=has_page):
                console.print(line, soft_wrap=True)
    finally:
        # Whatever becomes of the printing (`| head` closes its pipe), the files are what was asked for.
        for path in files:
            what = _KINDS_OF_FILES[path.suffix]
            try:
                if what == "figures":
                    write_csv(path, recorded, findings, checked)
                else:
                    path.write_text(texts[what]() + "\n", encoding="utf-8")
            except OSError as error:
                problems.append(f"the {what} could not be written to {path}: {error.strerror or error}")
    for problem in problems:
        complain(problem)
    for judgement in judgements:
        if judgement.result != "passed":
            complain(f"--fail-if {judgement.rule.text!r}, {judgement.arm}, {judgement.cell}: {judgement.sentence}")
    return 1 if problems or fails(judgements) else 0


def as_json_text(data: object) -> str:
    """Return data as JSON, indented."""
    return json.dumps(data, ensure_ascii=False, indent=2)


def _writable(flag: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{flag} needs a folder that can be written to, and {folder} is none: {error.strerror or error}"
        ) from error

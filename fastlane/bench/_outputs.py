"""Where a run's reports go: the terminal, files, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ..errors import ConfigurationError, MissingExtraError
from ._options import ReportOptions
from .checks import check
from .findings import find
from .recorded import RecordedRun, see_writable
from .reports import (
    KINDS,
    document,
    fails,
    judge,
    junit,
    markdown,
    page,
    parse_fail_if,
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


def prepare(options: ReportOptions, new_folder: Path | None = None) -> None:
    """See that the reports can be made, and written to where they are wanted, before anything is sent.

    `new_folder` is that of a run that is about to be made. Raises ConfigurationError and MissingExtraError.
    """
    if options.kind not in KINDS:
        raise ConfigurationError(f"--kind takes {', '.join(KINDS)}, got {options.kind!r}")
    for text in options.fail_if or ():
        parse_fail_if(text)
    if options.as_json + options.full + options.quiet > 1:
        raise ConfigurationError("--json, --full and --quiet are three ways to print: give one of them")
    if new_folder is not None:
        see_writable(new_folder, "--folder")
    for path in options.files or ():
        if path.suffix not in _KINDS_OF_FILES:
            raise ConfigurationError(f"-o takes files that end with {', '.join(_KINDS_OF_FILES)}, got {str(path)!r}")
        if path.is_dir():
            raise ConfigurationError(f"-o takes a file, and {path} is a folder")
        see_writable(path.parent, "-o")
        if path.suffix == ".html" and not has_charts():
            raise MissingExtraError("charts", "altair")


def has_charts() -> bool:
    """Return whether what draws charts is installed."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def publish(
    recorded: RecordedRun,
    options: ReportOptions,
    folder: Path,
    complain: Callable[[str], None],
    *,
    is_new: bool = False,
) -> int:
    """Print a run's report and write what was asked for; return the exit code.

    The folder of a new run gets a page and a summary too. The code is 0 where every cell's figures may be used and no
    rule came true, else 1.
    """
    findings = find(recorded)
    checked = check(recorded, findings)
    judgements = judge(recorded, findings, checked, [parse_fail_if(text) for text in options.fail_if or ()])
    shown = report(options.kind, recorded, findings, checked, rules=judgements)
    problems = list(dict.fromkeys(each.sentence for each in checked.refusals()))
    texts: dict[str, Callable[[], str]] = {
        "page": lambda: page(shown, recorded, findings, checked),
        "Markdown": lambda: markdown(shown),
        "document": lambda: as_json_text(document(recorded, findings, checked)),
        "JUnit": lambda: junit(recorded, checked, judgements),
    }
    files = list(options.files or ())
    if is_new:
        files += [folder / SUMMARY, *([folder / PAGE] if has_charts() else [])]
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    try:
        if options.as_json:
            typer.echo(texts["document"]())
        elif options.full or (options.kind != "ab" and not options.quiet):
            print_terminal(shown, console)
        elif not options.quiet:
            has_page = folder / PAGE in files or (folder / PAGE).exists()
            for line in screen(recorded, findings, checked, folder=folder, page=has_page):
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

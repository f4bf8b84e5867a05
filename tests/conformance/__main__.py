"""`make conformance`: run openai's own tests with fastlane's clients in their place, and judge what is lost."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.conformance import environment
from tests.conformance.baselines import baseline_of
from tests.conformance.judging import Results, Run, Side, Verdict, judged
from tests.conformance.suite import HERE, SUITES, Clients, Suite, SuiteError, files_and_ignored, lines, plugins_for

_TELL = Console(stderr=True, soft_wrap=True, width=None if sys.stderr.isatty() else 160)
# The last release of openai 2, which stands on httpx, and the one that the API description is for.
_OLD = "2.54.0"
_DESCRIBED = "3.3.1"
# Streams are what both clients of `broken_clients` get wrong.
_SELF_CHECK = ["tests/test_streaming.py"]
_MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run: a suite of one release, with whose clients, and how it is judged."""

    release: str
    suite: str
    clients: Clients
    both_sides: bool = False

    @property
    def name(self) -> str:
        """What it is called in tables."""
        scope = "" if self.clients.scope == "core" else f", scope {self.clients.scope}"
        return f"{self.suite} on openai {self.release}{scope}{self.clients.plays and f', plays [{self.clients.plays}]'}"


def main() -> int:
    """Run and judge; 0 where nothing is lost, 1 where something is, 2 if there is no verdict."""
    options = _parser().parse_args()
    # What it has started ends with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    work = options.work.expanduser().resolve()
    try:
        with environment.held(work):
            wanted = _wanted(options)
            found = [(one, *_one(one, options, work)) for one in wanted]
    except SuiteError as error:
        _TELL.print(f"[bold red]not run:[/] {escape(str(error))}")
        return 2
    exit_code = 1 if any(verdict.lost for _, verdict, _ in found) else max(verdict.exit_code for _, verdict, _ in found)
    if not options.self_check:
        _print_verdicts(found)
    if options.self_check:
        # Each of the two broken clients must lose tests, each different ones.
        proved = all({"failed", "skipped"} <= set(verdict.lost.values()) for _, verdict, _ in found)
        _TELL.print(
            "the judging finds what broken clients lose" if proved else "[bold red]broken clients were not found out"
        )
        exit_code = 0 if proved else 1
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--openai",
        action="append",
        metavar="VERSION",
        help=f"a release, or `installed`; may be repeated (installed and {_OLD})",
    )
    parser.add_argument(
        "--suite",
        choices=SUITES,
        default="quick",
        help="quick: what touches the client; offline: what needs no API server; full: all, with --spec (quick)",
    )
    parser.add_argument(
        "--scope", choices=("core", "all"), default="core", help="all: the Azure and Bedrock classes too"
    )
    parser.add_argument(
        "--both-sides",
        action="store_true",
        help="run all tests with the stock client too, and not only what does not pass with ours",
    )
    parser.add_argument(
        "--release",
        action="store_true",
        help="before a release: offline and scope all on the newest, full on 3.3.1, quick on 2.54.0; both sides",
    )
    parser.add_argument(
        "--plays", default="", metavar="LIST", help='in the place of the default plays: "Connection(), Hedging()"'
    )
    parser.add_argument(
        "--self-check",
        action="store_true",
        help="run a few tests with clients that are wrong on purpose: 0 where their losses are found",
    )
    parser.add_argument("--spec", type=Path, help="the OpenAPI document of 3.3.1, for the mock server")
    parser.add_argument(
        "--snapshots",
        type=Path,
        help="openai's .inline-snapshot/external; 13 tests of recorded streams are left out without",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("~/.cache/fastlane-conformance"),
        help="environments, tests, results (%(default)s)",
    )
    return parser


def _wanted(options: argparse.Namespace) -> list[Wanted]:
    clients = Clients("fastlane", options.scope, options.plays)
    if options.self_check:
        clients = Clients("broken_clients")
        return [Wanted(environment.installed_openai(), "quick", clients)]
    if options.release:
        newest = environment.installed_openai()
        # Some tests of that release need the API description, which is not public. All others run anywhere.
        described = "full" if options.spec else "offline"
        runs: list[tuple[str, str, Literal["core", "all"]]] = [
            (newest, "offline", "core"),
            (newest, "quick", "all"),
            (_DESCRIBED, described, "core"),
            (_OLD, "quick", "core"),
        ]
        return [Wanted(release, suite, replace(clients, scope=scope), True) for release, suite, scope in runs]
    if options.suite == "full" and options.spec is None:
        raise SuiteError("--suite full needs --spec, the OpenAPI document that the mock server answers by")
    asked = options.openai or ("installed", _OLD)
    releases = [environment.installed_openai() if one == "installed" else one for one in asked]
    return [Wanted(release, options.suite, clients, options.both_sides) for release in releases]


def _one(wanted: Wanted, options: argparse.Namespace, work: Path) -> tuple[Verdict, float]:
    started = time.monotonic()
    with ExitStack() as stack:
        with _TELL.status(escape(f"{wanted.name}: environment and tests")):
            python = environment.python_with(wanted.release, work)
            source = environment.source_of(wanted.release, python, work, options.snapshots)
            files, ignored = files_and_ignored(source, wanted.suite)
            name = "-".join(
                (wanted.release, wanted.suite, wanted.clients.module.replace(".", "_"), wanted.clients.scope)
            )
            suite = Suite(
                python=python,
                source=source,
                files=_SELF_CHECK if options.self_check else files,
                clients=wanted.clients,
                results=work / "results" / name,
                ignored=ignored,
                plugins=plugins_for(wanted.release),
            )
            if wanted.suite == "full":
                suite = replace(
                    suite, api_url=stack.enter_context(environment.mock_server(options.spec.resolve(), work))
                )
        _TELL.print(f"{escape(wanted.name)}: set up in {time.monotonic() - started:.0f} s", highlight=False)
        run = _with_progress(suite.run, wanted.name)
        baseline = (
            baseline_of(suite, run, options.spec if wanted.suite == "full" else None, work)
            if wanted.both_sides
            else None
        )
        expected = lines(HERE / "expected-all.txt") if wanted.clients.scope == "all" else []
        verdict = judged(run, expected=expected, baseline=baseline)
    if verdict.lost or verdict.unfit:
        _TELL.print(f"  see {suite.results}", highlight=False)
    return verdict, time.monotonic() - started


def _with_progress(run: Run, name: str) -> Any:
    """Say of every run what it is for while it lasts, and what came of it."""

    def run_with_progress(side: Side, step: str, **options: Any) -> Results:
        started = time.monotonic()
        with _TELL.status(escape(f"{name}: {step}")):
            results = run(side, step, **options)
        counts = ", ".join(f"{results.count(outcome):,} {outcome}" for outcome in ("passed", "failed", "skipped"))
        _TELL.print(f"  {step}: {counts} in {time.monotonic() - started:.0f} s", highlight=False)
        return results

    return run_with_progress


def _print_verdicts(found: list[tuple[Wanted, Verdict, float]]) -> None:
    for wanted, verdict, _ in found:
        for test, outcome in list(verdict.lost.items())[:_MOST_TOLD]:
            _TELL.print(f"[bold red]lost[/], {escape(wanted.name)}: {escape(test)}: {outcome}", highlight=False)
        for test in verdict.unsteady:
            _TELL.print(f"passed when it was run again, {escape(wanted.name)}: {escape(test)}", highlight=False)
    _TELL.print(_table(found))


def _table(found: list[tuple[Wanted, Verdict, float]]) -> Table:
    table = Table(
        "run", "collected", "passed", "skipped", "failed", "lost", "expected", "fail anyway", "seconds", "verdict"
    )
    for wanted, verdict, seconds in found:
        ours = verdict.ours
        counts = (len(verdict.stock.collected), ours.count("passed"), ours.count("skipped"), ours.count("failed"))
        judged_so = (len(verdict.lost), len(verdict.expected), len(verdict.failing_anyway))
        words = "tests are lost" if verdict.lost else f"says nothing: {verdict.unfit}" if verdict.unfit else "conforms"
        table.add_row(
            escape(wanted.name), *(f"{count:,}" for count in (*counts, *judged_so)), f"{seconds:.0f}", escape(words)
        )
    return table


if __name__ == "__main__":
    sys.exit(main())

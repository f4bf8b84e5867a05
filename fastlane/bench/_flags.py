"""The options of `fastlane bench`, in the groups in which its help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ._arms import DEFAULT_ARMS, KNOWN_ARMS
from .workloads import presets

DEFAULT_WORKLOAD: Final = "code-review"
ROUND_TRIP_MS: Final = 40.0
PRESET: Final = "bench"

_WHAT = "What is compared"
_LOAD = "Load"
_ENOUGH = "How much is enough"
_WHERE = "Where the requests go"
_REPORTS = "Reports"


def _option(panel: str, text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **settings)


def _seldom(panel: str, text: str, *names: str, **settings: Any) -> Any:
    """Return an option that only --help-all shows."""
    return _option(panel, text, *names, hidden=True, **settings)


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for option in context.command.params:
            option.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show the other options too.", callback=_show_all, is_eager=True)
]

# typer cuts a long default off, but wraps a help text.
Arms = Annotated[
    str | None,
    _option(
        _WHAT,
        "Arms to compare, separated by commas: the known ones, or module:function, which makes a client of a base URL "
        f"and a key. Known: {', '.join(KNOWN_ARMS)}. If not given: {', '.join(DEFAULT_ARMS)}.",
        show_default=False,
    ),
]
Attribute = Annotated[
    str | None,
    _option(
        _WHAT,
        "In place of --arms: plays, separated by commas, to which the gain of all of them is attributed, by arms with "
        "each alone and with all but each.",
    ),
]
WorkloadName = Annotated[
    str,
    _option(
        _WHAT,
        f"A preset ({', '.join(presets())}), or a file of JSON lines: conversations, recorded calls, a trace.",
        "--workload",
        show_default=False,
    ),
]
Tools = Annotated[Path | None, _seldom(_WHAT, "JSON file with the tools of all conversations of --workload.")]
Conversations = Annotated[int | None, _seldom(_WHAT, "Replay only the first N conversations.", min=1)]
Turns = Annotated[int | None, _seldom(_WHAT, "Replay only the first N turns of each.", min=1)]
Metrics = Annotated[str | None, _seldom(_WHAT, "Metrics to compare by, separated by commas.")]
Again = Annotated[
    bool, _seldom(_WHAT, "Run a copy of each reference: its interval says by how much two equal arms differ here.")
]
MaxInputTokens = Annotated[
    int | None,
    _option(_WHAT, "Leave out turns whose prompt is longer, at about four characters a token.", min=1),
]
MaxOutputTokens = Annotated[int | None, _seldom(_WHAT, "Most output tokens asked of a turn.", min=2)]

Users = Annotated[
    str | None,
    _option(
        _LOAD,
        "Users at the same time, each with one request in flight, shared by all arms: a number, or several, separated "
        "by commas, of which each is a cell of its own. If not given: what the workload says, else 8.",
        show_default=False,
    ),
]
ThinkS = Annotated[float | None, _seldom(_LOAD, "Pause of a user between turns, in seconds.", min=0)]
Rate = Annotated[
    str | None,
    _option(_LOAD, "In place of --users: blocks a second, sent at their time, whatever became of those before."),
]
ArrivalsName = Annotated[
    str | None, _seldom(_LOAD, "poisson, constant or recorded: how --rate is spread.", "--arrivals")
]
Speed = Annotated[float, _seldom(_LOAD, "Replay recorded arrivals this many times as fast.")]
Processes = Annotated[
    int | None,
    _seldom(
        _LOAD,
        "Deal the users out to this many load generators. If not given: one for each 45 users.",
        min=1,
        show_default=False,
    ),
]
Ray = Annotated[
    str | None,
    _seldom(_LOAD, "Run the load generators, one on each node, on the Ray cluster with this address (extra `ray`)."),
]

BudgetS = Annotated[
    float | None,
    _option(
        _ENOUGH,
        "Start no block after this many seconds, of all cells together; 0 for no limit. If not given: 45 a cell.",
        show_default=False,
    ),
]
MaxCalls = Annotated[int | None, _seldom(_ENOUGH, "Most requests of all arms.", min=1)]
MaxTokens = Annotated[int | None, _seldom(_ENOUGH, "Most input and output tokens of all arms.", min=1)]
MaxMoney = Annotated[float | None, _option(_ENOUGH, "Most US dollars of all arms, by the catalog's prices.")]
PrecisionShare = Annotated[
    float | None,
    _option(
        _ENOUGH,
        "End a cell once every arm's typical change of the first metric is known this well: 0.03 is plus or minus 3 %.",
        "--precision",
    ),
]
WarmUp = Annotated[
    int | None,
    _seldom(
        _ENOUGH,
        "Requests of each arm before those that count, beside its first. If not given: what the workload says, else 1.",
        min=0,
        show_default=False,
    ),
]
Passes = Annotated[
    int | None,
    _seldom(
        _ENOUGH,
        "Replay the workload so often, each time with other salts; if not given, until something else ends it.",
        min=1,
    ),
]
Seed = Annotated[int, _seldom(_ENOUGH, "Of the arms' order, the salts and the provider's draws.")]

BaseUrl = Annotated[str | None, _option(_WHERE, "A real provider, in place of the embedded one.")]
Model = Annotated[str | None, _option(_WHERE, "The real provider's model.")]
ApiKeyEnv = Annotated[str, _option(_WHERE, "Environment variable that holds the real provider's key.")]
LimitField = Annotated[
    str, _seldom(_WHERE, "Field of the body that limits an answer's tokens; older servers know only max_tokens.")
]
Preset = Annotated[
    str | None,
    _seldom(
        _WHERE,
        f"Behaviour of the embedded provider, {PRESET} if not given; see `fastlane emulator --list-presets`.",
    ),
]
RttMs = Annotated[
    float | None,
    _seldom(_WHERE, f"Round trip to the embedded provider, in ms; {ROUND_TRIP_MS:g} if not given.", min=0),
]

ReportKind = Annotated[
    str,
    _option(
        _REPORTS,
        "ab: arms beside each other; load: by users; lengths: by lengths of input and output; scaling: the pace of one "
        "user among many.",
        "--kind",
    ),
]
RunReportKind = Annotated[str, _seldom(_REPORTS, "See `fastlane bench report --help`.", "--kind")]
Folder = Annotated[
    Path | None,
    _option(
        _REPORTS,
        "Folder for the run: every raw record, run.json and report.html. If not given: one below bench-results.",
        "--folder",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path] | None,
    _option(
        _REPORTS,
        "Also write this file, by its ending: .html a page, .md Markdown, .csv figures, .json all figures, .xml what "
        "--fail-if found, as JUnit's. May be given several times.",
        "-o",
        "--output",
    ),
]
AsJson = Annotated[bool, _option(_REPORTS, "Print one JSON document instead.", "--json")]
Full = Annotated[bool, _option(_REPORTS, "Print every table, check and definition.", "--full", "-v")]
Quiet = Annotated[bool, _option(_REPORTS, "Print only what is wrong.", "--quiet", "-q")]
Targets = Annotated[
    list[str] | None,
    _seldom(_REPORTS, 'Such as "ttft_p50 < 500 ms", with --kind lengths; may be given several times.', "--target"),
]
FailIf = Annotated[
    list[str] | None,
    _option(
        _REPORTS,
        'Such as "ttft_p50 > +5%": exit code 1 where the interval shows it; may be given several times.',
        "--fail-if",
    ),
]

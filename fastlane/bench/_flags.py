"""The options of `fastlane bench`, in the groups in which its help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

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
_MACHINES = "Machines"
_REPORTS = "Reports"

# typer cuts a long default off, but wraps a help text.
Arms = Annotated[
    str | None,
    typer.Option(
        help="Arms to compare, separated by commas: the known ones, or module:function, which makes a client of a base "
        f"URL and a key. Known: {', '.join(KNOWN_ARMS)}. If not given: {', '.join(DEFAULT_ARMS)}.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
Attribute = Annotated[
    str | None,
    typer.Option(
        help="In place of --arms: plays, separated by commas, to which the gain of all of them is attributed, by arms "
        "with each alone and with all but each.",
        rich_help_panel=_WHAT,
    ),
]
WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload",
        help=f"A preset ({', '.join(presets())}), or a file: conversations or recorded calls as JSON lines, traffic "
        "traces, ShareGPT-style conversations.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
Tools = Annotated[
    Path | None,
    typer.Option(help="JSON file with the tools of all conversations of --workload.", rich_help_panel=_WHAT),
]
Conversations = Annotated[
    int | None, typer.Option(min=1, help="Replay only the first N conversations.", rich_help_panel=_WHAT)
]
Turns = Annotated[int | None, typer.Option(min=1, help="Replay only the first N turns of each.", rich_help_panel=_WHAT)]
Metrics = Annotated[str | None, typer.Option(help="Metrics to compare by, separated by commas.", rich_help_panel=_WHAT)]
Again = Annotated[
    bool,
    typer.Option(
        help="Run a copy of the arm that the others are compared with: its interval is what the bench itself sways by.",
        rich_help_panel=_WHAT,
    ),
]
MaxOutputTokens = Annotated[
    int | None, typer.Option(min=2, help="Most output tokens asked of a turn.", rich_help_panel=_WHAT)
]

Users = Annotated[
    str | None,
    typer.Option(
        "--users",
        "--lanes",
        help="Users at the same time, each with one request in flight, shared by all arms: a number, or several, "
        "separated by commas, of which each is a cell of its own. If not given: what the workload says, else 8.",
        show_default=False,
        rich_help_panel=_LOAD,
    ),
]
ThinkS = Annotated[
    float | None,
    typer.Option(min=0, help="Pause of a user between turns, in seconds.", rich_help_panel=_LOAD),
]
Rate = Annotated[
    str | None,
    typer.Option(
        help="In place of --users: blocks a second, sent when their time has come, whatever became of those before.",
        rich_help_panel=_LOAD,
    ),
]
ArrivalsName = Annotated[
    str | None,
    typer.Option("--arrivals", help="poisson, constant or recorded: how --rate is spread.", rich_help_panel=_LOAD),
]
Speed = Annotated[float, typer.Option(help="Replay recorded arrivals this many times as fast.", rich_help_panel=_LOAD)]

BudgetS = Annotated[
    float | None,
    typer.Option(
        help="Start no block after this many seconds, of all cells together; 0 for no limit. If not given: 45 a cell.",
        show_default=False,
        rich_help_panel=_ENOUGH,
    ),
]
MaxCalls = Annotated[int | None, typer.Option(min=1, help="Most requests of all arms.", rich_help_panel=_ENOUGH)]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Most input and output tokens of all arms.", rich_help_panel=_ENOUGH)
]
MaxMoney = Annotated[
    float | None,
    typer.Option(help="Most US dollars of all arms, by the catalog's prices.", rich_help_panel=_ENOUGH),
]
PrecisionShare = Annotated[
    float | None,
    typer.Option(
        "--precision",
        help="End a cell once every arm's typical change of the first metric is known this well: 0.03 is plus or "
        "minus 3 %.",
        rich_help_panel=_ENOUGH,
    ),
]
WarmUp = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Requests of each arm before those that count, beside its first. If not given: what the workload says, "
        "else 1.",
        show_default=False,
        rich_help_panel=_ENOUGH,
    ),
]
Passes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Replay the workload so often, each time with other salts; if not given, until something else ends it.",
        rich_help_panel=_ENOUGH,
    ),
]
Seed = Annotated[
    int, typer.Option(help="Of the arms' order, the salts and the provider's draws.", rich_help_panel=_ENOUGH)
]

BaseUrl = Annotated[
    str | None, typer.Option(help="A real provider, in place of the embedded one.", rich_help_panel=_WHERE)
]
Model = Annotated[str | None, typer.Option(help="The real provider's model.", rich_help_panel=_WHERE)]
ApiKeyEnv = Annotated[
    str,
    typer.Option(help="Environment variable that holds the real provider's key.", rich_help_panel=_WHERE),
]
LimitField = Annotated[
    str,
    typer.Option(
        help="Field of the body that limits an answer's tokens; older servers know only max_tokens.",
        rich_help_panel=_WHERE,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help=f"Behaviour of the embedded provider, {PRESET} if not given; see `fastlane emulator --list-presets`.",
        rich_help_panel=_WHERE,
    ),
]
RttMs = Annotated[
    float | None,
    typer.Option(
        min=0,
        help=f"Round trip to the embedded provider, in ms; {ROUND_TRIP_MS:g} if not given.",
        rich_help_panel=_WHERE,
    ),
]

Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Deal the users out to this many load generators. If not given: 1, and for 26 users or more as many as a "
        "calibration of the clients asks for.",
        show_default=False,
        rich_help_panel=_MACHINES,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Run the load generators, one on each node, on the Ray cluster with this address (extra `ray`).",
        rich_help_panel=_MACHINES,
    ),
]

ReportKind = Annotated[
    str,
    typer.Option(
        "--report",
        help="ab: arms beside each other; load: by users; lengths: by lengths of input and output; scaling: the pace "
        "of one user among many.",
        rich_help_panel=_REPORTS,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Report on the run that was kept in this folder; send nothing.", rich_help_panel=_REPORTS
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(help="With --from: a second folder, to be set beside the first, unpaired.", rich_help_panel=_REPORTS),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for every raw record, as they come, and for the figures.", rich_help_panel=_REPORTS),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --out where it was ended.", rich_help_panel=_REPORTS)
]
Html = Annotated[
    Path | None,
    typer.Option(help="File for one self-contained page with charts (extra `charts`).", rich_help_panel=_REPORTS),
]
Markdown = Annotated[Path | None, typer.Option(help="File for the report in Markdown.", rich_help_panel=_REPORTS)]
Csv = Annotated[Path | None, typer.Option(help="File for the figures, a row each.", rich_help_panel=_REPORTS)]
Junit = Annotated[
    Path | None, typer.Option(help="File for what --fail-if found, as JUnit's XML.", rich_help_panel=_REPORTS)
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="File for the spans of every request: `fastlane trace view FILE` shows the arms side by side.",
        rich_help_panel=_REPORTS,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.", rich_help_panel=_REPORTS)
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help='Such as "ttft_p50 < 500 ms", with --report lengths; may be given several times.',
        rich_help_panel=_REPORTS,
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        help='Such as "ttft_p50 > +5%": exit code 1 where the interval shows it; may be given several times.',
        rich_help_panel=_REPORTS,
    ),
]
SelfTest = Annotated[
    bool,
    typer.Option(
        "--self-test",
        help="Measure the harness itself against a server that stamps what it sends, and nothing else.",
        rich_help_panel=_REPORTS,
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="With --self-test: half a minute in place of two.", rich_help_panel=_REPORTS)
]

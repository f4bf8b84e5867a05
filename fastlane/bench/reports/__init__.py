"""Reports of a run, made from its raw records: what they say as data, and the forms in which they are shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fastlane.errors import ConfigurationError

from ..checks import Checked
from ..findings import Findings
from ..recorded import RecordedRun
from ._figures import csv_rows as csv_rows, document as document, plain as plain, write_csv as write_csv
from ._material import Material
from ._page import page as page
from ._rules import (
    Rule as Rule,
    RuleResult,
    fails as fails,
    judge as judge,
    junit as junit,
    parse_fail_if as parse_fail_if,
    rules_section,
)
from ._screen import LiveProgress as LiveProgress, screen as screen
from ._sections import ab_report, compare as compare, sweep_report
from ._tables import (
    Entry as Entry,
    Line as Line,
    ReportTable as ReportTable,
    RunReport as RunReport,
    Section as Section,
    markdown as markdown,
    print_terminal as print_terminal,
)

_REPORTS: Final = {"ab": ab_report, "sweep": sweep_report}
KINDS: Final[tuple[str, ...]] = tuple(_REPORTS)


def report(
    kind: str, recorded: RecordedRun, findings: Findings, checked: Checked, *, rules: Sequence[RuleResult] = ()
) -> RunReport:
    """Return a report of a run, "ab" or "sweep", with the results of `rules`, or raise ConfigurationError."""
    if kind not in _REPORTS:
        raise ConfigurationError(f"unknown report {kind!r}: expected one of {', '.join(KINDS)}")
    made = _REPORTS[kind](Material(recorded=recorded, findings=findings, checked=checked))
    return replace(made, sections=(rules_section(rules), *made.sections)) if rules else made

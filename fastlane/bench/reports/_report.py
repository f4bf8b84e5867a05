"""From a recorded run to one of its reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from fastlane.errors import ConfigurationError

from ..checks import Checked
from ..findings import Findings
from ..recorded import RecordedRun
from ._ab import ab_report
from ._blocks import Kind, RunReport
from ._material import Material
from ._rules import Rule
from ._sweeps import lengths_report, load_report, scaling_report

KINDS: tuple[Kind, ...] = get_args(Kind)


def report(
    kind: Kind,
    recorded: RecordedRun,
    findings: Findings,
    checked: Checked,
    *,
    targets: Sequence[Rule] = (),
) -> RunReport:
    """Return one kind of report of a run; `targets` (see `parse_target`) go with "lengths".

    Raises ConfigurationError for an unknown kind, for targets with another kind, and for a target about a scenario
    that the run does not have.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    if kind == "lengths":
        return lengths_report(material, targets)
    if targets:
        raise ConfigurationError(f"targets go with the report 'lengths', not with {kind!r}: leave them out")
    if kind == "ab":
        return ab_report(material)
    if kind == "load":
        return load_report(material)
    if kind == "scaling":
        return scaling_report(material)
    raise ConfigurationError(f"unknown report {kind!r}: expected one of {', '.join(KINDS)}")

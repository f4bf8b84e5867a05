"""Whether a run's figures can be believed."""

from __future__ import annotations

from ..findings import Findings
from ..recorded import RecordedRun
from . import _checks  # noqa: F401 - adds the checks
from ._check import (
    CHECKS as CHECKS,
    CellView,
    Checked as Checked,
    CheckResult as CheckResult,
    Level as Level,
    results_of,
    without_refused_tails as without_refused_tails,
)


def check(recorded: RecordedRun, findings: Findings | None = None) -> Checked:
    """Return what every check says of a run.

    Without findings, what compares with them is "not checked", or left out.
    """
    header = recorded.header
    cells = [CellView(recorded, cell, findings) for cell in header.cells]
    return Checked(
        results=tuple(results_of(recorded, cells)),
        references={arm.name: header.reference_of(arm.name).name for arm in header.arms},
    )

"""Whether a run's figures can be believed."""

from __future__ import annotations

from ..findings import Findings
from ..recorded import RecordedRun
from . import _arms, _requests  # noqa: F401 - each adds its checks
from ._check import (
    CHECKS as CHECKS,
    CellView,
    Checked as Checked,
    CheckResult as CheckResult,
    Level as Level,
    without_refused_tails as without_refused_tails,
)


def check(recorded: RecordedRun, findings: Findings | None = None) -> Checked:
    """Return what every check says of a run.

    Without findings, what compares with them is "not checked", or left out.
    """
    header = recorded.header
    cells = [CellView(recorded, cell, findings) for cell in header.cells]
    return Checked(
        results=tuple(result for each in CHECKS for result in each.run(recorded, cells)),
        references={arm.name: header.reference_of(arm.name).name for arm in header.arms},
    )

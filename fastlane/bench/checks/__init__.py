"""Whether a run's figures can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..findings import Findings
from ..recorded import RecordedRun
from . import _answers, _arms, _client, _load, _requests
from ._arms import CONNECTIONS as CONNECTIONS
from ._check import Check, RunView, cut as cut
from ._tails import without_refused_tails as without_refused_tails
from ._types import Checked as Checked, CheckResult as CheckResult, Level as Level

_ALL: Final[tuple[Check, ...]] = (
    *_requests.CHECKS,
    *_answers.CHECKS,
    *_client.CHECKS,
    *_load.CHECKS,
    *_arms.CHECKS,
)


def check(recorded: RecordedRun, findings: Findings | None = None) -> Checked:
    """Return what every check says of a run.

    With its findings, effects that are claimed are held against the lags of the measuring processes, figures against
    one another, and the reference against its copy; without them those are "not checked", or left out.
    """
    view = RunView(recorded=recorded, findings=findings)
    results = tuple(result for each in _ALL for result in each.run(view))
    header = recorded.header
    return Checked(results=results, references={arm.name: header.reference_of(arm.name).name for arm in header.arms})


def catalogue() -> Mapping[str, str]:
    """Return every check by its name, with one line of what it looks for."""
    return {each.name: each.line for each in _ALL}

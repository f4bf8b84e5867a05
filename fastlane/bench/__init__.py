"""The A/B harness: replay real conversations with several clients, and say which was faster and how sure that is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from ._arms import Arm as Arm, arms_named as arms_named
from ._experiment import Benchmark as Benchmark, Embedded as Embedded, Real as Real
from .load import Closed as Closed, Open as Open, Precision as Precision, RunBudget as RunBudget
from .progress import Progress as Progress
from .recorded import RecordedRun as RecordedRun, Sample as Sample, read_run as read_run
from .running import RunFailedError as RunFailedError
from .workloads import (
    Conversation as Conversation,
    Workload as Workload,
    code_review as code_review,
    preset as preset,
    presets as presets,
    read_workload as read_workload,
    scenarios as scenarios,
)

if TYPE_CHECKING:
    from .checks import Checked as Checked, CheckResult as CheckResult, check as check
    from .findings import Findings as Findings, find as find
    from .reports import report as report

# What judges a run is loaded when it is first asked for: the processes that are measured import this package too, and
# have no use for numpy.
_LATER = {
    "Checked": ".checks",
    "CheckResult": ".checks",
    "check": ".checks",
    "Findings": ".findings",
    "find": ".findings",
    "report": ".reports",
}

__all__ = [
    "Arm",
    "Benchmark",
    "CheckResult",
    "Checked",
    "Closed",
    "Conversation",
    "Embedded",
    "Findings",
    "Open",
    "Precision",
    "Progress",
    "Real",
    "RecordedRun",
    "RunBudget",
    "RunFailedError",
    "Sample",
    "Workload",
    "arms_named",
    "check",
    "code_review",
    "find",
    "preset",
    "presets",
    "read_run",
    "read_workload",
    "report",
    "scenarios",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load what needs numpy."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(import_module(_LATER[name], __name__), name)
        except ModuleNotFoundError as error:
            if error.name != "numpy":
                raise
            raise MissingExtraError("bench", "numpy") from error

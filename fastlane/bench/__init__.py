"""The A/B harness: replay real conversations with several clients, and say which was faster and how sure that is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from ._arms import Arm, arms_named
from ._experiment import Benchmark, Embedded, Real
from .load import Closed, Open, RunBudget
from .progress import Progress
from .recorded import RecordedRun, Sample, read_run
from .running import RunFailedError
from .workloads import Conversation, Workload, code_review, preset, presets, read_workload, scenarios

if TYPE_CHECKING:
    from .checks import Checked, CheckResult, check
    from .findings import Findings, find
    from .reports import report

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

"""The A/B harness: replay real conversations with several clients, and say which was faster and how sure that is."""

from .._exceptions import MissingExtraError

try:
    from ._arms import Arm as Arm, arms_named as arms_named
    from ._experiment import Experiment as Experiment
    from ._progress import Progress as Progress
    from ._provider import Embedded as Embedded, Real as Real
    from .checks import Checked as Checked, CheckResult as CheckResult, check as check
    from .findings import Findings as Findings, find as find
    from .load import Budget as Budget, Closed as Closed, Open as Open, Precision as Precision
    from .recorded import Recorded as Recorded, Sample as Sample, read_run as read_run
    from .reports import report as report
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
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise MissingExtraError("bench", "numpy") from error

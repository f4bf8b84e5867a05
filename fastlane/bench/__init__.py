"""The A/B harness: replay real conversations with several clients, and say which was faster and how sure that is."""

from .._exceptions import MissingExtraError

try:
    from ._arms import Arm as Arm, arms_named as arms_named
    from ._experiment import Experiment as Experiment
    from ._progress import Progress as Progress
    from ._provider import Embedded as Embedded, Real as Real
    from ._run import Run as Run, Settings as Settings, run as run
    from ._summary import Summary as Summary, summarise as summarise
    from ._workers import RunFailedError as RunFailedError
    from .workloads import (
        Conversation as Conversation,
        Workload as Workload,
        code_review as code_review,
        read_workload as read_workload,
    )
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise MissingExtraError("bench", "numpy") from error

"""Whether a run's figures can be believed."""

from ._types import Checked as Checked, CheckResult as CheckResult, Level as Level

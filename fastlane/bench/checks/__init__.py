"""Whether a run's figures can be believed."""

from ._arms import CONNECTIONS as CONNECTIONS
from ._check import catalogue as catalogue, check as check
from ._sight import cut as cut
from ._tails import without_refused_tails as without_refused_tails
from ._types import Checked as Checked, CheckResult as CheckResult, Level as Level

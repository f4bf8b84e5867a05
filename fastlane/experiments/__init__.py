"""Experiments on live calls: a share of them goes to another arm, and the arms are compared at any time."""

from ..records.record import ExperimentRecord as ExperimentRecord
from .comparison import Comparison as Comparison, Guard as Guard
from .experiment import (
    ArmReport as ArmReport,
    Experiment as Experiment,
    ExperimentReport as ExperimentReport,
    unit as unit,
)
from .ledger import EndedArm as EndedArm

__all__ = ["ArmReport", "Comparison", "EndedArm", "Experiment", "ExperimentRecord", "ExperimentReport", "Guard", "unit"]

"""Experiments on live calls: a share of them goes to another arm, and the arms are compared at any time."""

from ..records.record import ExperimentRecord as ExperimentRecord
from .assignment import unit as unit
from .comparison import Comparison as Comparison
from .experiment import ArmReport as ArmReport, Experiment as Experiment, ExperimentReport as ExperimentReport
from .guards import Guard as Guard
from .store import EndedArm as EndedArm

__all__ = ["ArmReport", "Comparison", "EndedArm", "Experiment", "ExperimentRecord", "ExperimentReport", "Guard", "unit"]

"""Experiments on live calls: a share of them goes to an arm, and the arms are compared as they go."""

from ..records.experiment import ExperimentRecord as ExperimentRecord
from ._document import EndedArm as EndedArm
from ._experiment import Experiment as Experiment
from ._guards import Guard as Guard
from ._report import ArmReport as ArmReport, ExperimentReport as ExperimentReport
from ._units import unit as unit
from ._verdicts import Comparison as Comparison

__all__ = ["ArmReport", "Comparison", "EndedArm", "Experiment", "ExperimentRecord", "ExperimentReport", "Guard", "unit"]

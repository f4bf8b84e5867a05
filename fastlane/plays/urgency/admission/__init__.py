"""Who of those that wait is sent next: a gate for each origin, account and model, shared by a process."""

from ._gate import Gate as Gate
from ._registry import gate_of as gate_of, states as states
from ._settings import AdmissionSettings as AdmissionSettings
from ._state import GateState as GateState
from .slot import Slot as Slot

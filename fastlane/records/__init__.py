"""What is left of a call when it is over: `CallRecord`, and the sections that plays add to it."""

from .ledger import Figure as Figure, Ledger as Ledger
from .metrics import Measure as Measure, Metric as Metric
from .section import Recorded as Recorded, RecordSection as RecordSection

__all__ = ["Figure", "Ledger", "Measure", "Metric", "RecordSection", "Recorded"]

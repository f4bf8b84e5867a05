"""How requests are spread over time, and when a run has enough of them: pure planning."""

from ._types import (
    Arrivals as Arrivals,
    Budget as Budget,
    Closed as Closed,
    Load as Load,
    Open as Open,
    Precision as Precision,
)

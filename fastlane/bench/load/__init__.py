"""How requests are spread over time, and when a run has enough of them: pure planning."""

from ._arrivals import arrivals as arrivals, spread as spread
from ._blocks import (
    Block as Block,
    blocks_in_pass as blocks_in_pass,
    first_turn as first_turn,
    lane_of as lane_of,
    open_blocks as open_blocks,
)
from ._budget import RunCost as RunCost, exhausted as exhausted, share_of as share_of, share_spent as share_spent
from ._cells import cells_of as cells_of
from ._types import (
    Closed as Closed,
    Load as Load,
    Open as Open,
    Precision as Precision,
    RunBudget as RunBudget,
)

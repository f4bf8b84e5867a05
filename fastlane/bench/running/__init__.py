"""Send the requests of a plan with every arm's client, and record what happened."""

from ._crew import Crew as Crew, ShardProcess as ShardProcess, ShardRunner as ShardRunner
from ._messages import (
    BlockDone as BlockDone,
    CellEnded as CellEnded,
    CellPlan as CellPlan,
    Event as Event,
    ShardPlan as ShardPlan,
)
from ._shard import Shard as Shard
from ._workers import RunFailedError as RunFailedError

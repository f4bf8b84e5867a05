"""Send the requests of a plan with every arm's client, and record what happened."""

from ._coordinator import Coordinator as Coordinator
from ._messages import BlockDone as BlockDone, CellEnded as CellEnded
from ._workers import (
    LocalShard as LocalShard,
    MakeShard as MakeShard,
    RunFailedError as RunFailedError,
    Shard as Shard,
    ShardPlan as ShardPlan,
)

"""Send the requests of a plan with every arm's client, and record what happened."""

from ._coordinator import Coordinator as Coordinator
from ._messages import BlockDone as BlockDone, CellEnded as CellEnded, RunFailedError as RunFailedError
from ._worker import LocalShard as LocalShard, MakeShard as MakeShard, Shard as Shard, ShardPlan as ShardPlan

"""Send the requests of a run with every arm's client, and record what happened."""

from ._requests import RunFailedError as RunFailedError
from ._run import run_benchmark as run_benchmark
from ._worker import MakeShard as MakeShard

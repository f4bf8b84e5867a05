"""When the next request may go: a provider's rate limits, read out of its answers and kept to before it refuses."""

from ._counted import tokens_counted as tokens_counted
from ._known import KnownLimit as KnownLimit, KnownLimits as KnownLimits
from ._pacer import Pacer as Pacer, Spent as Spent

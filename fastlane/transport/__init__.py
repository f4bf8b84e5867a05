"""Connections: the pools that clients share."""

from ._pooled import PoolSettings as PoolSettings, pool_settings as pool_settings
from ._shared import (
    aclose_if_unused as aclose_if_unused,
    close_if_unused as close_if_unused,
    shared_transport as shared_transport,
)

__all__ = ["PoolSettings", "aclose_if_unused", "close_if_unused", "pool_settings", "shared_transport"]

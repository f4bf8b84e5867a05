"""Connections: the pools that clients share."""

from ._shared import (
    PoolSettings as PoolSettings,
    aclose_if_unused as aclose_if_unused,
    close_if_unused as close_if_unused,
    pool_settings as pool_settings,
    shared_transport as shared_transport,
)

__all__ = ["PoolSettings", "aclose_if_unused", "close_if_unused", "pool_settings", "shared_transport"]

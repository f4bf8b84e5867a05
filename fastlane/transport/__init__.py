"""Connections: the pools that clients share."""

from ._shared import PoolSettings as PoolSettings
from ._shared import aclose_if_unused as aclose_if_unused
from ._shared import close_if_unused as close_if_unused
from ._shared import pool_settings as pool_settings
from ._shared import shared_transport as shared_transport

__all__ = ["PoolSettings", "aclose_if_unused", "close_if_unused", "pool_settings", "shared_transport"]

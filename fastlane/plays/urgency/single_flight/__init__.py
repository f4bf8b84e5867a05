"""Identical deterministic calls that are under way at the same time, sent once."""

from ._flight import flights as flights, forget as forget
from ._key import key_of as key_of, why_not as why_not
from ._sharing import Refused as Refused, Sharing as Sharing
from ._tasks import async_shared as async_shared
from ._threads import shared as shared

__all__ = ["Refused", "Sharing", "async_shared", "flights", "forget", "key_of", "shared", "why_not"]

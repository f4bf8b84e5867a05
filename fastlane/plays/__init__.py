"""The playbook: one module per play, none knows another."""

from ._base import Play as Play, Stage as Stage, Watcher as Watcher
from .connection import Connection as Connection
from .encoding import Encoding as Encoding

__all__ = ["Connection", "Encoding", "Play", "Stage", "Watcher"]

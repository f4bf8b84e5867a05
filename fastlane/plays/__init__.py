"""The playbook: one module per play, none knows another."""

from ._base import Play as Play, Stage as Stage, Watcher as Watcher
from .connection import Connection as Connection

__all__ = ["Connection", "Play", "Stage", "Watcher"]

"""The playbook: one module per play, none knows another."""

from ._base import Play as Play, Stage as Stage, Watcher as Watcher
from .bounded_output import BoundedOutput as BoundedOutput
from .connection import Connection as Connection
from .curation import Curation as Curation
from .encoding import Encoding as Encoding
from .hedging import Hedging as Hedging
from .prompt_cache import PromptCache as PromptCache
from .routing import Routing as Routing
from .urgency import Urgency as Urgency

__all__ = [
    "BoundedOutput",
    "Connection",
    "Curation",
    "Encoding",
    "Hedging",
    "Play",
    "PromptCache",
    "Routing",
    "Stage",
    "Urgency",
    "Watcher",
]

"""The playbook: one module per play, none knows another."""

from ..engine.play import Play as Play, Stage as Stage, Watcher as Watcher
from .bounded_output.play import BoundedOutput as BoundedOutput
from .connection.play import Connection as Connection
from .context_trimming.play import Curation as Curation
from .hedging.play import Hedging as Hedging
from .prompt_cache.play import PromptCache as PromptCache
from .reproducible.play import Reproducible as Reproducible
from .request_encoding.play import Encoding as Encoding
from .routing.play import Routing as Routing
from .urgency.play import Urgency as Urgency

__all__ = [
    "BoundedOutput",
    "Connection",
    "Curation",
    "Encoding",
    "Hedging",
    "Play",
    "PromptCache",
    "Reproducible",
    "Routing",
    "Stage",
    "Urgency",
    "Watcher",
]

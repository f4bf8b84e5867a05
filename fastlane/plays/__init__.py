"""The playbook: one package per play, none knows another. A play is loaded when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..engine.play import Play as Play, Stage as Stage

if TYPE_CHECKING:
    from .bounded_output.play import BoundedOutput as BoundedOutput
    from .connection.play import Connection as Connection
    from .context_trimming.play import ContextTrimming as ContextTrimming
    from .hedging.play import Hedging as Hedging
    from .prompt_cache.play import PromptCache as PromptCache
    from .rate_limits.play import RateLimits as RateLimits
    from .reproducible.play import Reproducible as Reproducible
    from .request_encoding.play import RequestEncoding as RequestEncoding
    from .response_socket.play import ResponseSocket as ResponseSocket
    from .routing.play import Routing as Routing
    from .unbroken.play import Unbroken as Unbroken
    from .urgency.play import Urgency as Urgency

# The package of each play.
_PLAYS = {
    "BoundedOutput": "bounded_output",
    "Connection": "connection",
    "ContextTrimming": "context_trimming",
    "RequestEncoding": "request_encoding",
    "Hedging": "hedging",
    "PromptCache": "prompt_cache",
    "RateLimits": "rate_limits",
    "Reproducible": "reproducible",
    "ResponseSocket": "response_socket",
    "Routing": "routing",
    "Unbroken": "unbroken",
    "Urgency": "urgency",
}

__all__ = [*_PLAYS, "Play", "Stage"]  # noqa: PLE0604


def load_all() -> None:
    """Load every play, so that the section of each is known."""
    for package in _PLAYS.values():
        import_module(f".{package}.play", __name__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLAYS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f".{_PLAYS[name]}.play", __name__), name)
        return found

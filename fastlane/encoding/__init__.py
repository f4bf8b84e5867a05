"""A call's body in another form than JSON: written, sent, taken back where it is refused, and learned from."""

from ._driving import async_run as async_run, run as run
from ._sending import Send as Send, Sending as Sending
from ._verdicts import Verdict as Verdict, verdicts as verdicts

__all__ = ["Send", "Sending", "Verdict", "async_run", "run", "verdicts"]

"""Plays for tests whose sessions call methods of the play."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fastlane import Call, Play, Session

HOOKS = ("plan", "on_event", "close")


class SessionPlay(Play):
    """A play whose sessions have those hooks alone that a subclass defines as a method, which they call."""

    __slots__ = ()

    def open(self, call: Call) -> Session | None:
        session = _session_class(type(self))()  # type: ignore[arg-type]
        session.play = self  # type: ignore[attr-defined]
        return session


@lru_cache
def _session_class(kind: type[SessionPlay]) -> type[Session]:
    return type("PlaySession", (Session,), {hook: _calling(hook) for hook in HOOKS if hasattr(kind, hook)})


def _calling(hook: str) -> Callable[[Any, Any], Any]:
    return lambda session, argument: getattr(session.play, hook)(argument)

"""Watch a stream of the application's own, and end it in good order where it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._assembly import deltas_of
from ._closing import Closing
from ._guard import Guard
from ._request import CHAT, RESPONSES
from ._watch import Watch


class StreamWatch:
    """Sees openai's typed events; a `Watcher`."""

    __slots__ = ("_closing", "_endpoint", "_guard")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._endpoint = guard.plan.endpoint
        options = guard.plan.body.get("stream_options")
        include_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        self._closing = Closing(self._endpoint, include_usage=include_usage)

    def see(self, event: Any) -> bool:
        """Look at one event; True to stop the stream after it."""
        self._closing.see(event)
        if not self._guard.watch.feed(deltas_of(event, self._endpoint)):
            return False
        _trim(event, self._endpoint, self._guard.watch)
        return True

    def closing(self) -> list[dict[str, Any]]:
        """The events that end the stream, if it was stopped by this."""
        if self._guard.watch.reason is None:
            return []
        return self._closing.events(self._guard.cut())


def _trim(event: Any, endpoint: str, watch: Watch) -> None:
    """Leave out of the last event what stands behind the answer's end."""
    try:
        for channel, progress in watch.contents.items():
            beyond = len(progress.text) - progress.end if progress.end is not None else 0
            if beyond <= 0:
                continue
            if endpoint == RESPONSES:
                if (event.output_index, event.content_index) == channel:
                    event.delta = _without_end(event.delta, beyond)
                continue
            for choice in event.choices:
                if choice.index != channel[0]:
                    continue
                if endpoint == CHAT:
                    choice.delta.content = _without_end(choice.delta.content, beyond)
                else:
                    choice.text = _without_end(choice.text, beyond)
    except (AttributeError, TypeError):
        pass  # an odd event is handed on as it is


def _without_end(text: str, characters: int) -> str:
    return text[: max(0, len(text) - characters)]

"""Watch a stream of the application's own, and end it in good order where it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlane.protocol.closing import closing_events
from fastlane.protocol.endpoints import CHAT, RESPONSES

from ..progress._json_progress import JsonProgress
from ._guard import Guard
from ._watch import Progress, Watch


class StreamWatch:
    """Sees openai's typed events; a `Watcher`."""

    __slots__ = ("_endpoint", "_guard", "_include_usage", "_leads", "_unframes")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._endpoint = guard.plan.endpoint
        self._unframes = guard.plan.is_json and guard.plan.early_stop and guard.plan.validates
        """Whether the application is given the JSON alone."""
        self._leads = self._unframes
        """Whether a fence may stand before the answer yet."""
        options = guard.plan.body.get("stream_options")
        self._include_usage = isinstance(options, Mapping) and options.get("include_usage") is True

    def see(self, event: Any) -> bool:
        """Look at one event; True to stop the stream after it."""
        watch = self._guard.watch
        is_stopped = watch.feed(self._guard.assembly.take(event))
        if is_stopped or (self._unframes and (self._leads or watch.has_ended)):
            _trim(event, self._endpoint, watch)
            if self._leads and watch.contents:
                self._leads = not all(isinstance(one, JsonProgress) and one.begun for one in watch.contents.values())
        return is_stopped

    def closing(self) -> list[dict[str, Any]]:
        """The events that end the stream, if it was stopped by this."""
        if self._guard.watch.reason is None:
            return []
        return closing_events(self._guard.assembly, self._guard.cut(), include_usage=self._include_usage)


def _trim(event: Any, endpoint: str, watch: Watch) -> None:
    """Leave out of an event what stands before the answer or behind its end."""
    try:
        for channel, progress in watch.contents.items():
            if endpoint == RESPONSES:
                if (event.output_index, event.content_index) == channel:
                    event.delta = _inside(event.delta, progress)
                continue
            for choice in event.choices:
                if choice.index != channel[0]:
                    continue
                if endpoint == CHAT:
                    if choice.delta.content is not None:
                        choice.delta.content = _inside(choice.delta.content, progress)
                else:
                    choice.text = _inside(choice.text, progress)
    except (AttributeError, TypeError):
        pass  # an odd event is handed on as it is


def _inside(text: str, progress: Progress) -> str:
    """What of the text that came last belongs to the answer."""
    length = len(progress.text)
    first, last = 0, length if progress.end is None else progress.end
    if isinstance(progress, JsonProgress):
        first = progress.start if progress.begun else length
    came = length - len(text)
    return text[max(0, first - came) : max(0, last - came)]

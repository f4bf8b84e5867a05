"""Where responses were made: what goes on from one can only go there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._upstream import Upstream


class ResponsesMade:
    """The upstreams of the latest responses and conversations, by hashes of their ids. Threads may share it."""

    def __init__(self) -> None:
        self._known: Table[int, Upstream] = Table("responses made", max_entries=16_384)

    def note(self, response_id: str, upstream: Upstream) -> None:
        """Take note of where a response was made."""
        self._known.put(hash(response_id), upstream)

    def of(self, response_id: str) -> Upstream | None:
        """Return where a response was made; None where that is not known."""
        return self._known.get(hash(response_id))


def chained_to(body: Mapping[str, Any], endpoint: str) -> tuple[str, ...] | None:
    """Return the ids of what a body goes on from, at /responses; None where it stands for itself."""
    if endpoint != "/responses":
        return None
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    given = (one for one in (previous, conversation) if one is not None)
    return tuple(one if isinstance(one, str) else "" for one in given) or None

"""Put the tool calls of a chat message together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._cut import Cut
from ._deltas import Channel, Delta
from ._merge import merge_delta, own

# Where a call has its name and what the tool is given, by the kind of the tool.
_INNER = (("function", "arguments"), ("custom", "input"))


class _Call:
    __slots__ = ("channel", "fields", "named", "pieces", "sent_as")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.sent_as: Any = None
        self.fields: dict[str, Any] = {}
        self.named = False
        self.pieces: dict[str, list[str]] = {}
        """The texts of what the tool is given, under the kind of the tool."""

    @property
    def text(self) -> str:
        return "".join(piece for pieces in self.pieces.values() for piece in pieces)


class ToolCalls:
    """All calls of one choice, in the order in which they began."""

    __slots__ = ("_by_id", "_by_index", "_calls", "_choice", "_last", "_next")

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: dict[int, _Call] = {}
        """By position."""
        self._by_index: dict[int, _Call] = {}
        """The last one that was begun with an index."""
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._next = 0
        """The position behind all others."""

    def take(self, pieces: Sequence[Any], deltas: list[Delta]) -> None:
        """Add the pieces of one chunk."""
        for piece in pieces:
            if isinstance(piece, Mapping):
                call = self._last = self._call_of(piece)
                self._add(call, piece, deltas)

    def _call_of(self, piece: Mapping[str, Any]) -> _Call:
        """Find the call that a piece belongs to.

        By its index; but there are providers that leave it out, or send 0 with every call. Another id and a name begin
        another call.
        """
        index, id_ = piece.get("index"), piece.get("id")
        named = any(isinstance(piece.get(kind), Mapping) and piece[kind].get("name") for kind, _ in _INNER)
        if not isinstance(index, int) or isinstance(index, bool):
            same = self._known_by(id_)
            if same is not None or (self._last is not None and not named):
                return same or self._last  # type: ignore[return-value]
            return self._begin(None)
        call = self._by_index.get(index)
        if call is None:
            return self._begin(index)
        known = call.fields.get("id")
        if id_ and known and id_ != known and named and call.named:
            same = self._known_by(id_)
            return same if same is not None and same.sent_as == index else self._begin(index)
        return call

    def _known_by(self, id_: Any) -> _Call | None:
        call = self._by_id.get(id_) if isinstance(id_, str) and id_ else None
        # An id may have come in pieces, or be another by now.
        return call if call is not None and call.fields.get("id") == id_ else None

    def _begin(self, index: int | None) -> _Call:
        position = index
        if position is None or position in self._calls or position < 0:
            position = self._next
        self._next = max(self._next, position + 1)
        call = self._calls[position] = _Call((self._choice, position))
        call.sent_as = index
        if index is not None:
            self._by_index[index] = call
        return call

    def _add(self, call: _Call, piece: Mapping[str, Any], deltas: list[Delta]) -> None:
        for field, value in piece.items():
            if field == "index":
                continue
            inner = next((inner for kind, inner in _INNER if kind == field), None)
            if inner is not None and isinstance(value, Mapping):
                self._add_inner(call, field, inner, value, deltas)
            elif value is not None:
                merge_delta(call.fields, {field: value})
        id_ = call.fields.get("id")
        if isinstance(id_, str) and self._known_by(id_) is None:
            self._by_id[id_] = call

    @staticmethod
    def _add_inner(call: _Call, kind: str, inner: str, value: Mapping[str, Any], deltas: list[Delta]) -> None:
        held = call.fields.setdefault(kind, {})
        if not isinstance(held, dict):
            return
        name = None
        for field, said in value.items():
            if field == inner and isinstance(said, str):
                call.pieces.setdefault(kind, []).append(said)
            elif field == "name" and isinstance(said, str) and said:
                known = held.get("name")
                if not call.named or not isinstance(known, str):
                    name, call.named = said, True
                    held["name"] = said
                elif said != known:  # some send the name again with every piece
                    held["name"] = known + said
            else:
                merge_delta(held, {field: said})
        text = value.get(inner)
        text = text if isinstance(text, str) else ""
        if text or name is not None:
            deltas.append(Delta(call.channel, "tool_call", text, name))

    def text(self, position: int) -> str:
        """Return what the tool of one call is given."""
        call = self._calls.get(position)
        return "" if call is None else call.text

    def body(self, cut: Cut | None) -> list[dict[str, Any]]:
        """Return the calls as they stand in a message."""
        found = []
        for position in sorted(self._calls):
            call = self._calls[position]
            fields = own(call.fields)
            for kind, inner in _INNER:
                if kind in call.pieces and isinstance(fields.get(kind), dict):
                    text = "".join(call.pieces[kind])
                    fields[kind][inner] = text if cut is None else cut.of(call.channel, text)
            found.append(fields)
        return found

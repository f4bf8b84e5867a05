"""The shape of a prompt: roles, lengths, and digests that show which prompts begin alike. It holds no text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

BLOCK_CHARACTERS = 512
"""Characters of a block: about 128 tokens, in which steps providers share prefixes."""
_DIGEST_BYTES = 6
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

# A prompt is laid out as one text: a mark, then the tools; a mark, a letter for the role and the content of each
# message; a mark and the text of each call of a tool; and a mark and a digest for what is no text. So lengths alone
# say where in that text each message stands, which is what a replay needs.
TOOLS_FRAME, MESSAGE_FRAME, CALL_FRAME, ATTACHMENT_FRAME = 1, 2, 1, 17


class Spoken(NamedTuple):
    """One message's lengths."""

    role: str
    length: int
    """Characters of its text."""
    calls: tuple[int, ...] = ()
    """Characters of the names and arguments of the tools that it calls."""
    attachments: int = 0
    """Its parts that are no text: pictures, sounds, files."""

    @property
    def laid_out(self) -> int:
        """Characters that it takes in the layout."""
        calls = sum(CALL_FRAME + each for each in self.calls)
        return MESSAGE_FRAME + self.length + calls + ATTACHMENT_FRAME * self.attachments

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without empty parts."""
        shown: dict[str, Any] = {"role": self.role, "length": self.length}
        if self.calls:
            shown["calls"] = list(self.calls)
        if self.attachments:
            shown["attachments"] = self.attachments
        return shown


class Shape(NamedTuple):
    """A whole prompt's lengths, and a salted digest of its text from the start to the end of each block."""

    messages: tuple[Spoken, ...]
    tools: int
    tools_length: int
    blocks: tuple[str, ...]


def shape_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], salt: bytes) -> Shape:
    """Return the shape of a prompt. Digests are comparable only among those of one salt, which is kept nowhere."""
    written = json.dumps(tools, ensure_ascii=False, default=str) if tools else ""
    pieces = [f"\x01{written}"] if tools else []
    spoken = []
    for message in messages:
        role = message.get("role")
        role = role if role in _ROLES else "other"
        texts, attached = _content(message.get("content"), salt)
        calls = [_call_text(call) for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
        text = "".join(texts)
        pieces.append(f"\x02{role[0]}{text}")
        pieces += [f"\x03{call}" for call in calls]
        pieces += [f"\x04{digest}" for digest in attached]
        spoken.append(Spoken(role, len(text), tuple(map(len, calls)), len(attached)))
    return Shape(tuple(spoken), len(tools), len(written), tuple(_blocks("".join(pieces), salt)))


def _blocks(text: str, salt: bytes) -> Iterator[str]:
    running = blake2b(key=salt, digest_size=_DIGEST_BYTES)
    for at in range(0, len(text), BLOCK_CHARACTERS):
        running.update(text[at : at + BLOCK_CHARACTERS].encode("utf-8", "surrogatepass"))
        yield running.hexdigest()


def _content(content: Any, salt: bytes) -> tuple[list[str], list[str]]:
    """Return the texts of a content, and digests of its other parts."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, list | tuple):
        return [json.dumps(content, ensure_ascii=False, default=str)], []
    texts, attached = [], []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            texts.append(text)
        else:
            data = json.dumps(part, default=str).encode()
            attached.append(blake2b(data, key=salt, digest_size=8).hexdigest())
    return texts, attached


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return ""
    return f"{function.get('name', '')}{function.get('arguments', '')}"

"""The shape of a prompt: its size, and digests that show which prompts begin alike. It holds no text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

BLOCK_CHARACTERS = 512
"""Characters of a block: about 128 tokens, in which steps providers share prefixes."""
_DIGEST_BYTES = 6


class Shape(NamedTuple):
    """A whole prompt's size, and a salted digest of its text from the start to the end of each block."""

    characters: int
    attachments: int
    """Its parts that are no text: pictures, sounds, files."""
    blocks: tuple[str, ...]


def shape_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], salt: bytes) -> Shape:
    """Return the shape of a prompt. Digests are comparable only among those of one salt, which is kept nowhere."""
    # A prompt is laid out as one text: a mark, then the tools; a mark, a letter for the role and the content of each
    # message; a mark and the text of each call of a tool; and a mark and a digest for what is no text.
    pieces = [f"\x01{json.dumps(tools, ensure_ascii=False, default=str)}"] if tools else []
    attachments = 0
    for message in messages:
        texts, attached = _content(message.get("content"), salt)
        role = str(message.get("role") or "other")
        pieces.append(f"\x02{role[0]}{''.join(texts)}")
        pieces += [f"\x03{_call_text(call)}" for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
        pieces += [f"\x04{digest}" for digest in attached]
        attachments += len(attached)
    text = "".join(pieces)
    return Shape(len(text), attachments, tuple(_blocks(text, salt)))


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

"""The shape of a prompt: its size, and digests that show which prompts begin alike. It holds no text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from ..protocol.fields import listed

BLOCK_CHARACTERS = 512
"""Characters of a block: about 128 tokens, in which steps providers share prefixes."""


class Shape(NamedTuple):
    """A whole prompt's size, and a salted digest of its text from the start to the end of each block."""

    characters: int
    attachments: int
    """Its parts that are no text: pictures, sounds, files."""
    blocks: tuple[str, ...]


def shape_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], salt: bytes) -> Shape:
    """Return the shape of a prompt. Digests are comparable only among those of one salt, which is kept nowhere."""
    # The prompt is laid out as one text, with a mark before the tools, each message, call of a tool and attachment.
    pieces = [f"\x01{json.dumps(tools, ensure_ascii=False, default=str)}"] if tools else []
    attachments = 0
    for message in messages:
        pieces.append(f"\x02{str(message.get('role') or 'other')[0]}")
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else [content]:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                pieces.append(text)
            elif part is not None:
                attachments += 1
                pieces.append(
                    f"\x04{blake2b(json.dumps(part, default=str).encode(), key=salt, digest_size=8).hexdigest()}"
                )
        for call in filter(None, listed(message.get("tool_calls"))):
            function = call.get("function") if isinstance(call, Mapping) else None
            pieces.append(f"\x03{json.dumps(function, ensure_ascii=False, default=str)}")
    text = "".join(pieces)
    running, blocks = blake2b(key=salt, digest_size=6), []
    for at in range(0, len(text), BLOCK_CHARACTERS):
        running.update(text[at : at + BLOCK_CHARACTERS].encode("utf-8", "surrogatepass"))
        blocks.append(running.hexdigest())
    return Shape(len(text), attachments, tuple(blocks))

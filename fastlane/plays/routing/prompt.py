"""A request's prompt in the order in which a provider reads it, and how large it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from fastlane.knowledge.token_ranks import tables

# In the order in which a provider reads them: what a longer conversation begins with comes first.
_FIELDS = ("tools", "functions", "response_format", "text", "instructions", "messages", "input", "prompt")
# Tuples, because what stands under "type" may be anything, hashable or not.
_PICTURES = ("image_url", "input_image", "image")
_SOUNDS = ("input_audio", "audio")
_FILES = ("file", "input_file")
# Base64 of a page of a PDF, which is some 1,500 tokens with its picture, takes 50 to 100 kB.
_FILE_CHARACTERS = 50
# Shorter ones are addresses, and do not weigh.
_LONG = 512
_FILLER_BYTES_PER_TOKEN = 4
_MAX_DEPTH = 6


class PromptSize(NamedTuple):
    """The sizes of one request."""

    prompt: bytes
    """What the provider reads, as JSON, with a filler of as many tokens in place of each picture, sound and file."""
    body_bytes: int
    """Of the whole request as JSON."""
    text_bytes: int
    """Of them, those that are no picture, sound or file."""
    other_tokens: float
    """What pictures, sounds and files come to, estimated."""


def prompt_size(body: Mapping[str, Any], written: bytes | None) -> PromptSize:
    """Return the sizes of a request; `written` is its JSON, where that has been written already.

    Never raises: what cannot be written as JSON counts nothing. About 10 us for 100 kB.
    """
    body_bytes = len(written if written is not None else json_of(body))
    pieces: list[bytes] = []
    attached: list[tuple[int, float]] = []
    for field in _FIELDS:
        value = body.get(field)
        if value is None:
            continue
        if is_token_ids(value):
            attached.append((len(json_of(value)), float(len(value))))
        else:
            pieces.append(json_of(_without_attachments(value, attached)))
    # Without what closes the list: a longer conversation goes on there.
    prompt = b"".join(pieces)[:-1]
    attached_bytes, attached_tokens = (sum(column) for column in zip(*attached, strict=True)) if attached else (0, 0.0)
    return PromptSize(prompt, body_bytes, max(0, body_bytes - int(attached_bytes)), attached_tokens)


def is_token_ids(prompt: Any) -> bool:
    """Whether a prompt is given as the ids of its tokens."""
    return isinstance(prompt, list | tuple) and bool(prompt) and type(prompt[0]) is int


def json_of(value: Any) -> bytes:
    """Return a value as JSON; nothing of what JSON has no form for."""
    try:
        return orjson.dumps(value, default=_plain)
    except Exception:  # noqa: BLE001 - surrogates, integers beyond 64 bits, keys that are no text
        try:
            return json.dumps(value, default=_plain, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except Exception:  # noqa: BLE001 - what contains itself
            return b""


def _plain(value: Any) -> Any:
    """Return what openai's own objects, and containers that JSON does not know, are made of."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else None


def _without_attachments(value: Any, found: list[tuple[int, float]], depth: int = 0) -> Any:
    """Return messages, items or parts with fillers for attachments. Their bytes and tokens are added to `found`."""
    if isinstance(value, list | tuple) and depth <= _MAX_DEPTH:
        return [one if type(one) is str else _without_attachments(one, found, depth + 1) for one in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    if kind in _PICTURES or kind in _SOUNDS or kind in _FILES:
        data = _longest_text(value)
        tokens = _tokens_of(kind, value, data)
        found.append((len(data), tokens))
        filler = f"{hash(data):x} "
        is_long = len(data) >= _LONG
        return (
            {"type": kind, "data": filler * (1 + int(tokens * _FILLER_BYTES_PER_TOKEN / len(filler)))}
            if is_long
            else value
        )
    for field in ("content", "output"):
        if isinstance(value.get(field), list | tuple):
            value = {**value, field: _without_attachments(value[field], found, depth + 1)}
    return value


def _tokens_of(kind: Any, part: Mapping[str, Any], data: str) -> float:
    attachments = tables()["attachments"]
    if kind in _FILES:
        return len(data) / _FILE_CHARACTERS
    if kind in _SOUNDS:
        return len(data) / float(attachments["audio_characters"])
    inner = part.get("image_url")
    detail = inner.get("detail") if isinstance(inner, Mapping) else part.get("detail")
    return float(attachments["image_low" if detail == "low" else "image"])


def _longest_text(part: Mapping[str, Any]) -> str:
    values = [one for value in part.values() for one in (value.values() if isinstance(value, Mapping) else (value,))]
    return max((one for one in values if isinstance(one, str)), key=len, default="")

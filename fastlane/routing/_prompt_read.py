"""A request's prompt in the order in which a provider reads it, as bytes, and what of them is no text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from .._token_ranks import tables

# What comes before the conversation, as `fastlane.prefixes` has it too.
_BEFORE = ("tools", "functions", "response_format", "instructions")
_LISTS = ("messages", "input", "prompt")
# Tuples, because what stands under "type" may be anything, hashable or not.
_PICTURES = ("image_url", "input_image", "image")
_FILES = ("file", "input_file")
_DATA = b"base64,"
_AUDIO = b"input_audio"
_MAX_DEPTH = 6


class PromptRead(NamedTuple):
    """The bytes of one request."""

    prompt: bytes
    """Tools, format and instructions, and then the conversation: what a longer one begins with as well."""
    body_bytes: int
    """Of the whole request as JSON."""
    text_bytes: int
    """Of them, those that are no picture, sound or file."""
    other_tokens: float
    """What pictures, sounds and files come to, estimated."""


def prompt_read(body: Mapping[str, Any], written: bytes | None, *, attached: bool) -> PromptRead:
    """Return the bytes of a request. Never raises: what cannot be written as JSON counts nothing.

    `attached`: whether there are pictures or sounds in it; those that it brings with it are found anyway. About 10 us
    for 100 kB.
    """
    pieces: list[bytes] = []
    size = 0
    taken: list[str] = []
    for field in _BEFORE:
        value = body.get(field)
        if value:
            pieces.append(json_of(value))
            taken.append(field)
    talk: Any = None
    name = next((one for one in _LISTS if body.get(one) is not None), None)
    if written is None:
        # Quotes, a colon and a comma around each name.
        size = sum(map(len, pieces)) + sum(map(len, taken)) + 4 * len(taken)
    text = body.get("text")
    if isinstance(text, Mapping) and text.get("format") is not None:
        pieces.append(json_of(text["format"]))
    if name is not None:
        talk = body[name]
        said = json_of(talk)
        size += len(said) + len(name) + 4
        # Without what closes the list or the text: a longer conversation goes on there.
        pieces.append(said[:-1])
        taken.append(name)
    prompt = b"".join(pieces)
    if written is not None:
        size = len(written)
    else:
        size += len(json_of({field: value for field, value in body.items() if field not in taken}))
    other_bytes, other_tokens = 0, 0.0
    if attached or _DATA in prompt or _AUDIO in prompt:
        for length, tokens in _attachments(talk, 0):
            other_bytes += length
            other_tokens += tokens
    return PromptRead(prompt, size, max(0, size - other_bytes), other_tokens)


def json_of(value: Any) -> bytes:
    """Return a value as JSON; as little as possible of what JSON has no form for, and nothing of what has no end."""
    try:
        return orjson.dumps(value, default=_plain)
    except Exception:  # noqa: BLE001 - surrogates, integers beyond 64 bits, keys that are no text
        try:
            return json.dumps(value, default=_plain, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except Exception:  # noqa: BLE001 - what contains itself
            return b""


def _plain(value: Any) -> Any:
    """What openai's own objects, and containers that JSON does not know, are made of."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    return None


def _attachments(value: Any, depth: int) -> Iterator[tuple[int, float]]:
    """Bytes and tokens of each picture, sound and file."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list | tuple):
        for member in value:
            yield from _attachments(member, depth + 1)
    elif isinstance(value, Mapping):
        kind = value.get("type")
        if kind in _PICTURES:
            yield _picture(value)
        elif kind in ("input_audio", "audio") or kind in _FILES:
            size = _longest_text(value)
            # A file's text is read out of it, and is less than what it is written in.
            per_token = tables()["attachments"]["audio_characters"] if kind not in _FILES else _FILE_CHARACTERS
            yield size, size / per_token
        else:
            for field in ("content", "output"):
                inner = value.get(field)
                if isinstance(inner, list | tuple):
                    yield from _attachments(inner, depth + 1)


# Base64 of a PDF: a page of 700 tokens and its picture in some 50 to 100 kB.
_FILE_CHARACTERS = 50


def _picture(part: Mapping[str, Any]) -> tuple[int, float]:
    inner = part.get("image_url")
    detail = inner.get("detail") if isinstance(inner, Mapping) else part.get("detail")
    return _longest_text(part), float(tables()["attachments"]["image_low" if detail == "low" else "image"])


def _longest_text(part: Mapping[str, Any]) -> int:
    """Characters of the address or the data of an attachment."""
    longest = 0
    for value in part.values():
        for one in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(one, str):
                longest = max(longest, len(one))
    return longest

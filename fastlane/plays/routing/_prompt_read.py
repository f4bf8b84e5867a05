"""A request's prompt in the order in which a provider reads it, as bytes, and what of them is no text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from fastlane.knowledge.token_ranks import tables

# What comes before the conversation, as `prompt_cache.prefixes` has it too.
_BEFORE = ("tools", "functions", "response_format", "instructions")
_LISTS = ("messages", "input", "prompt")
# Tuples, because what stands under "type" may be anything, hashable or not.
_PICTURES = ("image_url", "input_image", "image")
_SOUNDS = ("input_audio", "audio")
_FILES = ("file", "input_file")
# Base64 of a page of a PDF, which is some 1,500 tokens with its picture, takes 50 to 100 kB.
_FILE_CHARACTERS = 50
_MAX_DEPTH = 6
# Shorter ones are addresses, and do not weigh.
_LONG = 512
_BYTES_PER_TOKEN = 4
# Quotes, a colon and a comma around a field's name.
_AROUND = 4
_WORD = 0xFFFF_FFFF_FFFF_FFFF


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


def prompt_read(body: Mapping[str, Any], written: bytes | None) -> PromptRead:
    """Return the bytes of a request; `written` is its JSON, where that has been written already.

    Never raises: what cannot be written as JSON counts nothing. About 10 us for 100 kB.
    """
    pieces: list[bytes] = []
    rest = dict(body)
    size = 0
    for field in _BEFORE:
        if rest.get(field):
            pieces.append(json_of(rest.pop(field)))
            size += len(pieces[-1]) + len(field) + _AROUND
    text = rest.get("text")
    if isinstance(text, Mapping) and text.get("format") is not None:
        pieces.append(json_of(text["format"]))
    talk: Any = None
    for field in _LISTS:
        if rest.get(field) is not None:
            talk = rest.pop(field)
            said = json_of(talk)
            size += len(said) + len(field) + _AROUND
            # Without what closes the list or the text: a longer conversation goes on there.
            pieces.append(said[:-1])
            break
    prompt = b"".join(pieces)
    size = len(written) if written is not None else size + len(json_of(rest))
    if isinstance(talk, str):
        return PromptRead(prompt, size, size, 0.0)
    if is_token_ids(talk):
        return PromptRead(prompt, size, max(0, size - len(pieces[-1])), float(len(talk)))
    attached_bytes, attached_tokens, at = 0, 0.0, 0
    for data, tokens in _attachments(talk, 0):
        attached_bytes += len(data)
        attached_tokens += tokens
        prompt, at = _with_filler(prompt, data, tokens, at)
    return PromptRead(prompt, size, max(0, size - attached_bytes), attached_tokens)


def _with_filler(prompt: bytes, data: str, tokens: float, start: int) -> tuple[bytes, int]:
    """The prompt with as many bytes in the place of an attachment's as a text of its tokens has; and where they end.

    So that each byte of a prompt stands for as many tokens as any other.
    """
    if len(data) < _LONG or (at := prompt.find(data[:_LONG].encode("utf-8", "replace"), start)) < 0:
        return prompt, start
    filler = (b"%016x" % (hash(data) & _WORD)) * max(1, int(tokens * _BYTES_PER_TOKEN / 16))
    return b"".join((prompt[:at], filler, prompt[at + len(data) :])), at + len(filler)


def is_token_ids(prompt: Any) -> bool:
    """Whether a prompt is given as the ids of its tokens."""
    return isinstance(prompt, list | tuple) and bool(prompt) and type(prompt[0]) is int


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


def _attachments(value: Any, depth: int) -> Iterator[tuple[str, float]]:
    """The address or the data of each picture, sound and file, in order, and what it comes to in tokens."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list | tuple):
        for member in value:
            if type(member) is dict and "type" not in member:
                # Most are a role and a text, or a role and calls of tools.
                member = member.get("content")
            if member.__class__ is not str and member is not None:
                yield from _attachments(member, depth + 1)
    elif isinstance(value, Mapping):
        kind = value.get("type")
        if kind in _PICTURES:
            inner = value.get("image_url")
            detail = inner.get("detail") if isinstance(inner, Mapping) else value.get("detail")
            yield _longest_text(value), float(tables()["attachments"]["image_low" if detail == "low" else "image"])
        elif kind in _SOUNDS:
            data = _longest_text(value)
            yield data, len(data) / float(tables()["attachments"]["audio_characters"])
        elif kind in _FILES:
            data = _longest_text(value)
            yield data, len(data) / _FILE_CHARACTERS
        else:
            for field in ("content", "output"):
                inner = value.get(field)
                if isinstance(inner, list | tuple):
                    yield from _attachments(inner, depth + 1)


def _longest_text(part: Mapping[str, Any]) -> str:
    longest = ""
    for value in part.values():
        for one in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(one, str) and len(one) > len(longest):
                longest = one
    return longest

"""Count the tokens of texts and conversations: exactly if the model's tokenizer is on disk, else by estimate.

Nothing is ever downloaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .token_estimate import estimate
from .token_ranks import Encode, encoder, encoding_of, tables

_MOST_REMEMBERED = 16_384
_SHORT = 24

# By encoding ("" for the estimate): tokens by the hash of a text, which does not reveal the text.
_remembered: dict[str, dict[int, float]] = {}

# Fields of a message or item that the model does not see, or that only describe the rest.
_UNSEEN = frozenset(
    ("id", "call_id", "tool_call_id", "type", "status", "role", "name", "encrypted_content", "cache_control",
     "prompt_cache_breakpoint", "detail", "format", "phase", "file_data", "file_id", "file_url", "filename")
)  # fmt: skip
# Tuples, because the value of "type" may not be hashable.
_PICTURES = ("image_url", "input_image", "image")
_CALLS = ("function", "function_call", "custom", "custom_tool_call")
_FRAMED = ("function_call_output", "custom_tool_call_output", "reasoning")


class Counter:
    """Counts tokens for one model."""

    __slots__ = ("_encode", "_known", "encoding")

    encoding: str | None
    """The name of the model's encoding, such as "o200k_base"; None if unknown."""

    def __init__(self, encoding: str | None, encode: Encode | None) -> None:
        self.encoding = encoding
        self._encode = encode
        self._known = _remembered.setdefault(encoding or "" if encode is not None else "", {})

    @property
    def exact(self) -> bool:
        """Whether the model's own tokenizer counts texts. Frames around messages use published numbers."""
        return self._encode is not None

    def __repr__(self) -> str:
        return f"Counter(encoding={self.encoding!r}, exact={self.exact})"

    def text(self, text: str) -> int:
        """Return the tokens of a text. Counts of long texts are cached by hash."""
        return math.ceil(self._measured(text))

    def message(self, message: Any) -> int:
        """Return the tokens of one message, input item, or content part, the frame around it included.

        Files and encrypted reasoning count 0, because only the provider can count them. Never raises.
        """
        return math.ceil(self._framed(message))

    def tools(self, tools: Iterable[Any] | None) -> int:
        """Return the tokens of the tools' definitions, as JSON."""
        return math.ceil(sum(self._measured(_json(tool)) for tool in tools or ()))

    def messages(self, messages: Sequence[Any] | str, tools: Iterable[Any] | None = None) -> int:
        """Return the tokens of a prompt: messages or input items (or one text), and tools."""
        listed: Sequence[Any] = (messages,) if isinstance(messages, str) else messages
        frames = tables()["frames"]["answer"] if len(listed) else 0
        return sum(map(self.message, listed)) + self.tools(tools) + frames

    def _measured(self, text: str) -> float:
        if len(text) <= _SHORT:
            return len(self._encode(text)) if self._encode is not None else estimate(text)
        key = hash(text)
        size = self._known.get(key)
        if size is None:
            size = len(self._encode(text)) if self._encode is not None else estimate(text)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = size
        return size

    def _framed(self, message: Any) -> float:
        frames: dict[str, int] = tables()["frames"]
        if isinstance(message, str):
            return self._measured(message) + frames["message"]
        if not isinstance(message, Mapping):
            # openai's own objects are messages too: an answer's message is often sent back as it came.
            dump = getattr(message, "model_dump", None)
            message = dump(exclude_unset=True) if callable(dump) else message
            return self._framed(message) if isinstance(message, Mapping) else self._shown(message)
        total = self._shown(message)
        if "role" in message or message.get("type") in _FRAMED:
            total += frames["message"]
        if "role" in message and isinstance(message.get("name"), str):
            total += self._measured(message["name"]) + frames["name"]
        return total

    def _shown(self, value: Any, depth: int = 0) -> float:
        """Return the tokens of all texts in a value."""
        if isinstance(value, str):
            return self._measured(value)
        if isinstance(value, Mapping):
            kind = value.get("type")
            if kind in _PICTURES:
                return self._picture(value)
            if kind == "input_audio":
                return self._audio(value)
            total = sum(self._shown(one, depth + 1) for key, one in value.items() if key not in _UNSEEN and depth < 50)
            if kind in _CALLS and isinstance(value.get("name"), str):  # An item of /responses.
                total += self._measured(value["name"])
            if kind in _CALLS:
                total += tables()["frames"]["tool_call"]
            inner = value.get("function")
            if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                total += self._measured(inner["name"])
            return total
        if isinstance(value, list | tuple):
            return sum(self._shown(one, depth + 1) for one in value) if depth < 50 else 0.0
        return 0.0 if value is None or isinstance(value, bool) else self._measured(str(value)[:50])

    @staticmethod
    def _picture(part: Mapping[str, Any]) -> float:
        inner = part.get("image_url")
        detail = inner.get("detail") if isinstance(inner, Mapping) else part.get("detail")
        return float(tables()["attachments"]["image_low" if detail == "low" else "image"])

    @staticmethod
    def _audio(part: Mapping[str, Any]) -> float:
        inner = part.get("input_audio")
        data = inner.get("data") if isinstance(inner, Mapping) else None
        return len(data) / tables()["attachments"]["audio_characters"] if isinstance(data, str) else 0.0


def counter(model: str | None, *, wait: bool = True) -> Counter:
    """Return a token counter for a model.

    It is exact if tiktoken (the extra `tokens`) is installed, and the ranks of the model's encoding are in its cache
    (`TIKTOKEN_CACHE_DIR`, `DATA_GYM_CACHE_DIR`, or `data-gym-cache` in the folder for temporary files) with the right
    SHA-256. Loading them takes 0.1 to 0.4 s, once per process. With `wait=False` a thread loads them, and counters
    estimate until then. Without ranks, counters estimate. Never raises, never uses the network.
    """
    encoding = encoding_of(model)
    encode = encoder(encoding, wait=wait) if encoding is not None else None
    return Counter(encoding, encode)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    except (TypeError, ValueError, RecursionError):
        return ""

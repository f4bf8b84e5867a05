"""Ask the model something small, and keep what came back with the moments at which it came."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import openai

from .._clock import now_ns
from ..client.clients import OpenAI
from ..plays import Connection
from ._answers import at_path
from ._session import DoctorSettings

# The names under which servers know the limit of an answer, and limits: reasoning models refuse very small ones.
_LIMITS = (
    ("max_completion_tokens", 1),
    ("max_tokens", 1),
    ("max_completion_tokens", 16),
    ("max_tokens", 16),
    ("max_completion_tokens", 256),
)
_MOST_STREAM_BYTES = 4 * 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """An answer that came at once."""

    headers: Mapping[str, str]
    data: Mapping[str, Any]
    sent_ns: int
    ended_ns: int

    @property
    def text(self) -> str | None:
        """What the model said; None where it said nothing or the answer has another shape."""
        text = at_path(self.data, "choices.0.message.content")
        return text if isinstance(text, str) else None

    @property
    def finish_reason(self) -> str | None:
        """Why it ended."""
        reason = at_path(self.data, "choices.0.finish_reason")
        return reason if isinstance(reason, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRead:
    """What one read of a stream brought."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """An answer that came in pieces."""

    headers: Mapping[str, str]
    pieces: tuple[StreamRead, ...]
    sent_ns: int
    headers_ns: int
    """When the answer's head was there."""
    broke_off: str | None = None
    """Class name of the error that ended it; None where it ended by itself."""


class ModelCalls:
    """Calls of the model, each as small as can be."""

    def __init__(self, settings: DoctorSettings, model: str) -> None:
        self._client = OpenAI(
            base_url=settings.target.base_url,
            # A server that needs none ignores it; openai's client insists on one.
            api_key=settings.key or "none",
            only_plays=[Connection()],
            max_retries=0,
            timeout=settings.answer_timeout_s,
        )
        self._model = model
        self.limit_field = _LIMITS[0][0]
        self.least_tokens = 1
        """The smallest limit that the model takes."""
        self.refused_limits: tuple[str, ...] = ()
        """Names of the limit that were refused, where another was taken for as few tokens."""
        self.unheeded_limits: tuple[str, ...] = ()
        """Names of the limit that were taken, and not kept to."""

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def body(self, prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
        """A request's body with a limit of so many tokens, or the least that the model takes."""
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            self.limit_field: max(tokens, self.least_tokens),
            **fields,
        }

    def connect(self) -> None:
        """Have a connection open, so that no answer's time holds its own; where that fails, the first call says why."""
        with contextlib.suppress(openai.OpenAIError):
            self._client.models.with_raw_response.list()

    def learn_limit(self, prompt: str) -> WholeAnswer:
        """Ask for as little as the model can give, and find out what its limit is called. Raises openai's errors."""
        refused: list[tuple[str, int]] = []
        unheeded: dict[str, WholeAnswer] = {}
        last: openai.APIStatusError | None = None
        for name, tokens in _LIMITS:
            if name in unheeded:
                continue  # once was enough: answers without a limit cost
            self.limit_field, self.least_tokens = name, tokens
            try:
                answer = self.whole(prompt, tokens)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                refused.append((name, tokens))
                last = error
                continue
            if not heeds(answer.data, tokens):
                unheeded[name] = answer
                continue
            # One that was refused for fewer tokens than this may have been too small rather than unknown.
            self.refused_limits = tuple(each for each, of in refused if each != name and of >= tokens)
            self.unheeded_limits = tuple(unheeded)
            return answer
        for answer in unheeded.values():
            self.unheeded_limits = tuple(unheeded)
            return answer
        assert last is not None
        raise last

    def whole(self, prompt: str, tokens: int, **fields: Any) -> WholeAnswer:
        """Ask for an answer at once. Raises openai's errors."""
        body = self.body(prompt, tokens, **fields)
        sent_ns = now_ns()
        raw = self._client.chat.completions.with_raw_response.create(**_typed(body))
        response = raw.http_response
        return WholeAnswer(
            headers=dict(response.headers), data=_object(response.content), sent_ns=sent_ns, ended_ns=now_ns()
        )

    def stream(
        self, prompt: str, tokens: int, *, enough: Callable[[], bool] = lambda: False, **fields: Any
    ) -> Streamed:
        """Ask for an answer in pieces, with its usage at the end. Raises openai's errors before the first piece."""
        body = self.body(prompt, tokens, stream=True, stream_options={"include_usage": True}, **fields)
        sent_ns = now_ns()
        pieces: list[StreamRead] = []
        broke_off = None
        with self._client.chat.completions.with_streaming_response.create(**_typed(body)) as response:
            headers_ns = now_ns()
            size = 0
            try:
                for data in response.iter_bytes():
                    pieces.append(StreamRead(at_ns=now_ns(), data=data))
                    size += len(data)
                    if size > _MOST_STREAM_BYTES or enough():
                        break
            except Exception as error:  # noqa: BLE001 - what came before it counts
                broke_off = type(error).__name__
            return Streamed(
                headers=dict(response.headers),
                pieces=tuple(pieces),
                sent_ns=sent_ns,
                headers_ns=headers_ns,
                broke_off=broke_off,
            )


def heeds(data: Mapping[str, Any], tokens: int) -> bool:
    """Whether an answer kept to a limit; one without a count did as far as can be told."""
    output = at_path(data, "usage.completion_tokens")
    return not isinstance(output, int) or output <= tokens


def _typed(body: dict[str, Any]) -> dict[str, Any]:
    """The body as arguments of openai's method, which knows not every field."""
    own = {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "response_format"}
    extra = {name: value for name, value in body.items() if name not in own}
    given: dict[str, Any] = {name: value for name, value in body.items() if name in own}
    return {**given, "extra_body": extra} if extra else given


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

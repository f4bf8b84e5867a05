"""What one answer said, as it arrives: tokens and their stamps, usage, finish reasons, model and tier."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

from .._clock import now_ns
from ..protocol.cache_reasons import cache_miss_reason
from ..protocol.content import RESPONSE_ENDS, RESPONSE_KINDS, choices_kind, finish_reason_of
from ..protocol.fields import field, from_json, safe_id, safe_name, string, strings_in
from ..records.timeline import TokenKind


class AnswerSeen:
    """The account of one answer, kept event by event or from the whole."""

    __slots__ = (
        "_finished_choices",
        "_seen_choices",
        "_steady",
        "arrived_ns",
        "cache_reason",
        "events",
        "finish_reason",
        "first_content_ns",
        "first_event_ns",
        "first_token_kind",
        "first_token_ns",
        "frozen",
        "is_response",
        "model",
        "request_id",
        "response_id",
        "service_tier",
        "tier_path",
        "times",
        "times_in",
        "token_ns",
        "usage",
    )

    def __init__(self, *, is_response: bool) -> None:
        self.is_response = is_response
        self.frozen = False
        self._steady = False
        # Bit sets of the choices' indexes.
        self._seen_choices = 0
        self._finished_choices = 0
        self.arrived_ns = 0
        """When the bytes that are being decoded arrived, or were read; 0 where nobody says so."""
        self.events = 0
        self.first_event_ns: int | None = None
        self.first_token_ns: int | None = None
        self.first_token_kind: TokenKind | None = None
        self.first_content_ns: int | None = None
        self.token_ns: array[int] = array("q")
        self.usage: Any = None
        """The provider's own report, read when the record is made."""
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.service_tier: str | None = None
        self.request_id: str | None = None
        self.response_id: str | None = None
        self.cache_reason: str | None = None
        """The provider's own word for why its cache was missed."""
        self.tier_path: tuple[str, ...] = ()
        """The fields that lead to the tier that serves, where that is not in the usual one."""
        self.times_in: Callable[[Any], dict[str, float] | None] | None = None
        """Reads out of an answer or an event the provider's own times; None if the provider says none there."""
        self.times: dict[str, float] | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice that was begun has its finish reason."""
        return self._seen_choices != 0 and self._finished_choices == self._seen_choices

    def freeze(self, asked: str | None = None) -> None:
        """The call is over: what is read later is no part of its record, nor is what cannot be a name.

        The model that was `asked` for may have any.
        """
        self.frozen = True
        self._steady = False
        if self.model != asked:
            self.model = safe_name(self.model)
        self.finish_reason = safe_name(self.finish_reason)
        self.service_tier = safe_name(self.service_tier)
        self.request_id = safe_id(self.request_id)
        self.response_id = safe_id(self.response_id)

    def event(self, event: Any) -> None:
        """Look at one decoded event of a stream, out of the bytes that came at `arrived_ns`."""
        if self._steady:
            # The path of nearly every event of a chat stream: more content of the only choice, and nothing else.
            try:
                (choice,) = event.choices
                plain = choice.index == 0 and choice.finish_reason is None and event.usage is None
                if plain and choice.delta.content:
                    self.events += 1
                    self.token_ns.append(self.arrived_ns)
                    return
            except (AttributeError, TypeError, ValueError):
                pass
        if self.frozen:
            return
        self.events += 1
        arrived_ns = self.arrived_ns = self.arrived_ns or now_ns()
        if self.first_event_ns is None:
            self.first_event_ns = arrived_ns
        if self.is_response:
            self._response_event(event, arrived_ns)
        else:
            self._chat_event(event, arrived_ns)

    def begin_again(self) -> None:
        """The answer so far counts no more: another one is on its way in its place."""
        self.events = self.arrived_ns = 0
        self.first_event_ns = self.first_token_ns = self.first_token_kind = self.first_content_ns = None
        self.token_ns = array("q")
        self.times = None

    def piece(self, kinds: Iterable[TokenKind]) -> None:
        """Look at one event of a stream that is put together for an application that does not stream."""
        self.events += 1
        if self.first_event_ns is None:
            self.first_event_ns = self.arrived_ns
        for kind in kinds:
            self._token(kind, self.arrived_ns)
            break  # an event is not a token, and counts once

    def _chat_event(self, event: Any, arrived_ns: int) -> None:
        choices = getattr(event, "choices", None)
        if choices and isinstance(choices, list):
            kind = choices_kind(choices)
            if kind is not None:
                self._token(kind, arrived_ns)
            for choice in choices:
                self._choice(choice)
            self._steady = kind == "content" and self._seen_choices == 1
        if self.model is None:
            self.model = string(field(event, "model"))
            self.response_id = string(field(event, "id"))
        # Engines report usage on a last event without choices, on the finishing event, or on every event.
        usage = getattr(event, "usage", None)
        if usage is not None:
            self.usage = usage
        tier = string(field(event, "service_tier"))
        if self.tier_path:
            tier = self._tier_in(event) or tier
        if tier is not None:
            self.service_tier = tier
        if self.times_in is not None and (self._finished_choices or usage is not None or not choices):
            # Not of every delta of a tool call: a provider knows its times at the end.
            self.times = self.times_in(event) or self.times

    def _token(self, kind: TokenKind, arrived_ns: int) -> None:
        if self.first_token_ns is None:
            self.first_token_ns = arrived_ns
            self.first_token_kind = kind
        if kind == "content" and self.first_content_ns is None:
            self.first_content_ns = arrived_ns
        self.token_ns.append(arrived_ns)

    def _choice(self, choice: Any) -> None:
        index = getattr(choice, "index", 0)
        bit = 1 << index if isinstance(index, int) and 0 <= index < 1_024 else 1
        self._seen_choices |= bit
        reason = getattr(choice, "finish_reason", None)
        if reason:
            self._finished_choices |= bit
            if self.finish_reason is None:
                self.finish_reason = reason if isinstance(reason, str) else None

    def _response_event(self, event: Any, arrived_ns: int) -> None:
        event_type = getattr(event, "type", None)
        if not isinstance(event_type, str):
            return
        kind = RESPONSE_KINDS.get(event_type)
        if kind is not None:
            self._token(kind, arrived_ns)
        elif event_type in RESPONSE_ENDS:
            self.answer(getattr(event, "response", None))
            self._seen_choices = self._finished_choices = 1

    def answer(self, answer: Any) -> None:
        """Look at a whole answer: an unstreamed one, or the one that a Responses stream ends with."""
        if answer is None:
            return
        usage = getattr(answer, "usage", None)
        if usage is not None:
            self.usage = usage
        self.finish_reason = finish_reason_of(answer)
        self.model, self.response_id, self.service_tier = strings_in(answer, ("model", "id", "service_tier"))
        if self.tier_path:
            self.service_tier = self._tier_in(answer) or self.service_tier
        # Pydantic takes microseconds for an attribute that is not there, and few providers say a reason.
        if self.is_response or getattr(answer, "__pydantic_extra__", True):
            self.cache_reason = cache_miss_reason(answer)
        if self.times_in is not None:
            self.times = self.times_in(answer) or self.times
        # openai has read it from the headers already.
        self.request_id = string(getattr(answer, "_request_id", None))

    def _tier_in(self, answer: Any) -> str | None:
        for name in self.tier_path:
            answer = None if answer is None else field(answer, name)
        return answer if isinstance(answer, str) else None

    def raw_answer(self, body: bytes) -> Any:
        """Look at a whole answer that the application takes undecoded. What it says; None where it is no JSON."""
        try:
            answer = from_json(body)
            self.answer(answer)
        except ValueError:
            return None  # the application will find out for itself
        return answer

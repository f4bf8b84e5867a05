"""Generating endpoints in time: queue, prefill, decode, and the faults on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fastlane._clock import now_ns
from fastlane.emulator import _tokens
from fastlane.emulator._faults import Fault
from fastlane.emulator._generation import generate
from fastlane.emulator._http import Headers, ServedExchange, Stamp
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import KEEP_ALIVE, MALFORMED, Reply, ResponsesReply, StoredResponse, TokenUsage
from fastlane.emulator._request import ApiError, Overrides, retry_after

# A model without delays would otherwise keep the event loop to itself for a whole answer.
_TICKS_PER_TURN = 32
_REFUSED_STREAM = 7


class AnswerEnded(Exception):  # noqa: N818  (an end, not an error)
    """A fault has ended the answer; there is nothing left to send."""


async def strike_before_answer(exchange: ServedExchange, faults: Iterable[Fault]) -> None:
    """Do what the faults do before any work on the answer. Raises ApiError, or AnswerEnded if the exchange is over."""
    for fault in faults:
        if fault.kind == "disconnect":
            exchange.abort()
            raise AnswerEnded
        if fault.kind == "hang":
            await (asyncio.Event().wait() if fault.value is None else asyncio.sleep(fault.seconds))
        if fault.kind == "refuse":
            exchange.reset(_REFUSED_STREAM)
            raise AnswerEnded
        if fault.kind == "status":
            raise _status_error(fault)


async def until(deadline_ns: int) -> None:
    """Sleep until a moment of `now_ns`; a moment that is past costs nothing."""
    delay = deadline_ns - now_ns()
    if delay > 0:
        await asyncio.sleep(delay / 1e9)


class AnswerStream:
    """One generation being sent. Deadlines are absolute, so that one late token does not make the next one late."""

    def __init__(
        self,
        exchange: ServedExchange,
        provider: Provider,
        prompt: GenerationRequest,
        faults: Sequence[Fault],
        make_reply: Callable[..., Reply],
    ) -> None:
        self._exchange, self._record = exchange, exchange.record
        self._provider, self._prompt = provider, prompt
        self._faults: Mapping[str, Fault] = {fault.kind: fault for fault in reversed(faults)}
        self._make_reply = make_reply
        self._limit_headers: Headers = ()
        self._headers_sent = False
        self._struck: set[str] = set()
        self._sent_bytes = 0
        self._comments: asyncio.Task[None] | None = None

    async def run(self, key: str, overrides: Overrides) -> None:
        """Send the whole answer, or as much of it as the faults let through; `key` is whose rate limits apply."""
        record, provider, prompt = self._record, self._provider, self._prompt
        record.model, record.stream = prompt.model, prompt.stream
        record.prompt_tokens = _tokens.count(prompt.text)
        provider.check(prompt, record.prompt_tokens)
        record.asked_tier = prompt.service_tier
        self._limit_headers = provider.admit(prompt, record, key=key)
        tier = provider.model.service_tiers[record.service_tier or "default"]
        try:
            luck = provider.luck(record.sequence_number, prompt, overrides)
            record.late = luck.late
            if provider.answers and overrides.output_text is None:
                overrides = replace(overrides, output_text=provider.answers.popleft())
            choices = generate(prompt, overrides, provider.model, seed=provider.seed)
            record.manner = ",".join(dict.fromkeys(kind for choice in choices for kind in choice.manner)) or None
            await strike_before_answer(
                self._exchange, [fault for fault in self._faults.values() if not fault.strikes_unread]
            )
            if "keepalive" in self._faults and prompt.stream:
                self._send_headers()
                self._comments = asyncio.get_running_loop().create_task(self._send_comments())
            async with provider.slot(tier, record) as waited:
                written = provider.recall(prompt, luck, record)
                # Reading the body is work of the emulator, not of the provider it emulates: a part of prefill.
                started_ns = (record.admitted_ns if waited else record.body_complete_ns) or now_ns()
                uncached = record.prompt_tokens - record.cached_tokens
                first_token_at = started_ns + provider.prefill_ns(
                    uncached_tokens=uncached, luck=luck, tier=tier, overrides=overrides
                )
                usage = TokenUsage.of(
                    choices, prompt=record.prompt_tokens, cached=record.cached_tokens, cache_written=written,
                    cached_path=provider.model.dialect.cached_tokens_path,
                )  # fmt: skip
                number = record.sequence_number
                reply = self._make_reply(prompt, choices, usage, number=number, tier=record.service_tier)
                next_gap = provider.gaps_ns(luck=luck, tier=tier, overrides=overrides).__next__
                if prompt.stream and prompt.body.get("background") and isinstance(reply, ResponsesReply):
                    provider.stored[reply.id] = stored = StoredResponse.of(prompt, reply, first_token_at, next_gap)
                    await self.send_stored(stored, after=-1)
                elif prompt.stream:
                    await self._stream(reply, first_token_at, next_gap)
                else:
                    tokens = max(choice.tokens for choice in choices)
                    await self._whole(reply, usage, first_token_at + sum(next_gap() for _ in range(1, tokens)))
        except ApiError as error:
            error.headers = (*error.headers, *self._limit_headers)
            raise
        finally:
            if self._comments:
                self._comments.cancel()

    async def _send_comments(self) -> None:
        while True:
            await asyncio.sleep(self._faults["keepalive"].seconds)
            self._exchange.send(KEEP_ALIVE)

    async def _stream(self, reply: Reply, first_token_at: int, next_gap: Callable[[], int]) -> None:
        exchange, record = self._exchange, self._record
        slow = self._faults.get("slow_headers")
        early = "early_role" in self._faults and not slow
        if early:
            self._send_headers()
            exchange.send(reply.opening())
        await until(first_token_at)
        deadline = first_token_at
        if slow:
            await asyncio.sleep(slow.seconds)
            deadline = now_ns()
        if self._comments:
            self._comments.cancel()
        self._send_headers()
        if not early:
            await self._send(reply.opening())
        for sent, tick in enumerate(reply.ticks()):
            if sent:
                deadline += next_gap()
            await until(deadline)
            if sent % _TICKS_PER_TURN == _TICKS_PER_TURN - 1:
                await asyncio.sleep(0)
            if self._faults:
                deadline += await self._strike(record.output_tokens)
            await self._send(tick.data, record.stamp_token)
            record.output_tokens += tick.tokens
            record.reasoning_tokens += tick.reasoning_tokens
        if self._faults:
            await self._strike(None)
        await self._send(reply.closing(usage="no_usage" not in self._faults, done="no_done" not in self._faults))
        self._end()

    async def send_stored(self, stored: StoredResponse, *, after: int) -> None:
        """Send the events of a stored response with a number above `after`, as they come into being."""
        if self._comments:
            self._comments.cancel()
        self._send_headers()
        for at_ns, number, data, tokens in stored.events:
            if number > after:
                await until(at_ns)
                if self._faults:
                    await self._strike(self._record.output_tokens)
                await self._send(data, self._record.stamp_token if tokens else None)
                self._record.output_tokens += tokens
        self._end()

    async def _send(self, data: bytes, stamp: Stamp | None = None) -> None:
        """Send a part of the stream, and strike within it if a fault counts bytes."""
        for fault in self._faults.values():
            due = (
                -1 if fault.after_bytes is None or fault.kind in self._struck else fault.after_bytes - self._sent_bytes
            )
            if 0 <= due < len(data):
                self._exchange.send(data[:due])
                self._sent_bytes, data = self._sent_bytes + due, data[due:]
                await self._strike(None, only=(fault.kind,))
        if not self._exchange.writable:
            await self._exchange.drained()
        self._exchange.send(data, stamp)
        self._sent_bytes += len(data)

    async def _whole(self, reply: Reply, usage: TokenUsage, last_token_at: int) -> None:
        await until(last_token_at)
        slow = self._faults.get("slow_headers")
        if slow:
            await asyncio.sleep(slow.seconds)
        body = reply.whole(usage="no_usage" not in self._faults)
        if "malformed" in self._faults:
            body = body[: len(body) // 2] + b"}"
        await self._strike(None, only=("stall", "goaway"))
        self._send_headers(length=len(body))
        if any(kind in self._faults for kind in ("drop", "reset", "truncate")):
            self._exchange.send(body[: len(body) // 2])
            await self._strike(None)
        self._exchange.send(body)
        self._record.output_tokens, self._record.reasoning_tokens = usage.output, usage.reasoning
        self._end()

    def _send_headers(self, *, length: int | None = None) -> None:
        if self._headers_sent:
            return
        self._headers_sent = True
        headers = [
            ("content-type", "text/event-stream; charset=utf-8" if length is None else "application/json"),
            ("x-request-id", self._record.request_id),
            ("openai-processing-ms", str((now_ns() - self._record.received_ns) // 1_000_000)),
            ("cache-control", "no-cache"),
            *(() if length is None else (("content-length", str(length)),)),
            *self._limit_headers,
        ]
        self._exchange.send_headers(200, self._provider.model.dialect.with_headers(headers))

    async def _strike(self, sent: int | None, *, only: tuple[str, ...] | None = None) -> int:
        """Do what the faults do after `sent` tokens (None: after all); return the nanoseconds stalled."""
        exchange = self._exchange
        for kind, fault in self._faults.items():
            early = sent is not None and sent < fault.after
            if early or kind in self._struck or (fault.after_bytes is not None if only is None else kind not in only):
                continue
            self._struck.add(kind)
            match kind:
                case "drop":
                    exchange.abort()
                case "reset":
                    exchange.reset(fault.code)
                case "truncate":
                    self._end()
                case "goaway":
                    exchange.go_away(fault.last, hard=fault.value == "hard")
                case "malformed" if self._prompt.stream:
                    exchange.send(MALFORMED)
                case "stall":
                    if "keepalive" in self._faults and self._prompt.stream:
                        self._comments = asyncio.get_running_loop().create_task(self._send_comments())
                    await (asyncio.Event().wait() if fault.value is None else asyncio.sleep(fault.seconds))
                    if self._comments:
                        self._comments.cancel()
                    return round(fault.seconds * 1e9)
            if kind in ("drop", "reset", "truncate") or fault.value == "hard":
                raise AnswerEnded
        return 0

    def _end(self) -> None:
        for kind in ("idle_close", "idle_fin"):
            if kind in self._faults:
                self._exchange.connection.idle_close = (self._faults[kind].seconds, kind == "idle_fin")
        self._exchange.end()


def _status_error(fault: Fault) -> ApiError:
    status = int(fault.seconds)
    code = {429: "rate_limit_exceeded", 401: "invalid_api_key"}.get(status, "emulated_fault")
    kind = "server_error" if status >= 500 else "invalid_request_error"
    # LiteLLM knows a 401 by OpenAI's words for it alone.
    what = "Incorrect API key provided, as the fault says" if status == 401 else "Emulated fault"
    return ApiError(status, f"{what}: {fault}.", type=kind, code=code, headers=retry_after(fault.retry_after))

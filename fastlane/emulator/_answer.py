"""Generating endpoints in time: queue, prefill, decode, and the faults on the way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from fastlane._clock import now_ns
from fastlane.emulator import _tokens
from fastlane.emulator._errors import ApiError
from fastlane.emulator._exchange import ServerExchange
from fastlane.emulator._faults import Fault
from fastlane.emulator._generation import GeneratedChoice, generate
from fastlane.emulator._intake import AdmittedRequest
from fastlane.emulator._limiter import Headers
from fastlane.emulator._overrides import Overrides
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._provider import Luck, Provider
from fastlane.emulator._reply import KEEP_ALIVE, MALFORMED, Extras, GeneratedReply, TokenUsage
from fastlane.emulator._timing import timing_fields
from fastlane.emulator.settings import ServiceTier

ReplyMaker = Callable[..., GeneratedReply]

# A model without delays would otherwise keep the event loop to itself for a whole answer.
_TICKS_PER_TURN = 32
_REFUSED_STREAM = 7


class AnswerEnded(Exception):  # noqa: N818  (an end, not an error)
    """A fault has ended the answer; there is nothing left to send."""


async def strike_before_answer(exchange: ServerExchange, faults: Sequence[Fault]) -> None:
    """Do what the faults do before any work on the answer. Raises ApiError, or AnswerEnded if the exchange is over."""
    for fault in faults:
        if fault.kind == "disconnect":
            exchange.abort()
            raise AnswerEnded
        if fault.kind == "hang":
            if fault.value is None:
                await asyncio.Event().wait()
            await asyncio.sleep(_seconds(fault))
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
        exchange: ServerExchange,
        provider: Provider,
        prompt: GenerationRequest,
        overrides: Overrides,
        faults: Sequence[Fault],
        make_reply: ReplyMaker,
        *,
        account: bytes | None = None,
    ) -> None:
        self._exchange = exchange
        self._record = exchange.record
        self._provider = provider
        self._dialect = provider.dialect
        self._prompt = prompt if self._dialect.structured_outputs else dataclasses.replace(prompt, schema=None)
        self._overrides = overrides
        self._faults: Mapping[str, Fault] = {fault.kind: fault for fault in reversed(faults)}
        self._make_reply = make_reply
        # Whose rate limits hold; None: nobody's.
        self._account = account
        self._limit_headers: Headers = ()
        self._started_ns = 0
        self._diagnostics: Mapping[str, object] = {}
        self._served_tier = ""
        self._headers_sent = False
        self._malformed = False
        self._stalled = False
        self._gone_away = False

    async def run(self) -> None:
        """Send the whole answer, or as much of it as the faults let through."""
        record, provider, prompt = self._record, self._provider, self._prompt
        record.model, record.stream = prompt.model, prompt.stream
        record.prompt_tokens = _tokens.count(prompt.text)
        provider.check(prompt, record.prompt_tokens)
        record.asked_tier = prompt.service_tier
        entry = provider.intake.begin(prompt, record, account=self._account, overrides=self._overrides)
        try:
            self._limit_headers = entry.headers
            await self._admitted(entry)
        except ApiError as error:
            error.headers = (*error.headers, *entry.headers)
            raise
        finally:
            provider.intake.leave(entry, record)

    async def _admitted(self, entry: AdmittedRequest) -> None:
        record, provider, prompt = self._record, self._provider, self._prompt
        luck = provider.luck(record.sequence_number, prompt, self._overrides)
        record.late = luck.late
        choices = generate(prompt, self._overrides, provider.model, seed=provider.seed)
        record.manner = ",".join(dict.fromkeys(kind for choice in choices for kind in choice.manner)) or None
        with contextlib.suppress(AnswerEnded):
            await strike_before_answer(
                self._exchange, [fault for fault in self._faults.values() if not fault.strikes_unread]
            )
            keeping_alive = self._keep_alive()
            try:
                waited = await provider.intake.enter(entry, record)
                try:
                    await self._generate(luck, choices, tier=entry.tier, waited=waited, alive=keeping_alive)
                finally:
                    provider.intake.give_back(entry)
            finally:
                if keeping_alive:
                    keeping_alive.cancel()

    def _keep_alive(self) -> asyncio.Task[None] | None:
        fault = self._faults.get("keepalive")
        if fault is None or not self._prompt.stream:
            return None
        self._send_headers()
        return asyncio.get_running_loop().create_task(self._comment(_seconds(fault)))

    async def _comment(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._exchange.send(KEEP_ALIVE)

    async def _generate(
        self,
        luck: Luck,
        choices: Sequence[GeneratedChoice],
        *,
        tier: ServiceTier,
        waited: bool,
        alive: asyncio.Task[None] | None,
    ) -> None:
        record, provider, overrides = self._record, self._provider, self._overrides
        recalled = provider.recall(self._prompt, luck, tier.name)
        record.cached_tokens, record.cache_machine = recalled.cached_tokens, recalled.machine
        uncached = record.prompt_tokens - record.cached_tokens
        # Reading the body is work of the emulator, not of the provider it emulates: it counts as part of prefill.
        self._started_ns = (record.admitted_ns if waited else record.body_complete_ns) or now_ns()
        first_token_at = self._started_ns + provider.prefill_ns(
            uncached_tokens=uncached, luck=luck, tier=tier, overrides=overrides
        )
        usage = TokenUsage(
            prompt=record.prompt_tokens,
            cached=record.cached_tokens,
            cache_written=recalled.written_tokens,
            output=sum(choice.tokens for choice in choices),
            reasoning=sum(len(choice.reasoning) for choice in choices),
            cached_path=self._dialect.cached_tokens_path,
        )
        self._diagnostics = provider.comparisons.diagnostics(self._prompt, tier.name, record)
        told = tier.shown if self._dialect.service_tier_path == "standard" else None
        self._served_tier = tier.shown
        reply = self._make_reply(self._prompt, choices, usage, number=record.sequence_number, tier=told)
        gaps = provider.gaps_ns(luck=luck, tier=tier, overrides=overrides)
        if self._prompt.stream:
            await self._stream(reply, first_token_at, gaps.__next__, alive)
        else:
            tokens = max(choice.tokens for choice in choices)
            await self._whole(reply, usage, first_token_at, gaps.__next__, tokens)

    async def _stream(
        self, reply: GeneratedReply, first_token_at: int, next_gap: Callable[[], int], alive: asyncio.Task[None] | None
    ) -> None:
        exchange, record = self._exchange, self._record
        early = self._provider.model.role_chunk_early or "early_role" in self._faults
        slow = self._faults.get("slow_headers")
        if early and not slow:
            self._send_headers()
            exchange.send(reply.opening())
        await until(first_token_at)
        if slow:
            await asyncio.sleep(_seconds(slow))
            first_token_at = now_ns()
        if alive:
            alive.cancel()
        self._send_headers()
        if not early or slow:
            exchange.send(reply.opening())
        deadline = first_token_at
        for sent, tick in enumerate(reply.ticks()):
            if sent:
                deadline += next_gap()
            await until(deadline)
            if sent % _TICKS_PER_TURN == _TICKS_PER_TURN - 1:
                await asyncio.sleep(0)
            if self._faults:
                stalled = await self._strike(record.output_tokens)
                deadline += stalled
            if not exchange.writable:
                await exchange.drained()
            exchange.send(tick.data, record.token_ns.append)
            record.output_tokens += tick.tokens
            record.reasoning_tokens += tick.reasoning_tokens
        if self._faults:
            await self._strike(None)
        usage, done = "no_usage" not in self._faults, "no_done" not in self._faults
        exchange.send(reply.closing(usage=usage, done=done, extras=self._extras(first_token_at)))
        self._end()

    async def _whole(
        self, reply: GeneratedReply, usage: TokenUsage, first_token_at: int, next_gap: Callable[[], int], tokens: int
    ) -> None:
        await until(first_token_at + sum(next_gap() for _ in range(max(0, tokens - 1))))
        slow = self._faults.get("slow_headers")
        if slow:
            await asyncio.sleep(_seconds(slow))
        body = reply.whole(usage="no_usage" not in self._faults, extras=self._extras(first_token_at))
        if "malformed" in self._faults:
            body = body[: len(body) // 2] + b"}"
        before_headers = ("stall", "goaway")
        await self._strike(None, only=before_headers)
        self._send_headers(length=len(body))
        if any(kind in self._faults for kind in ("drop", "reset", "truncate")):
            self._exchange.send(body[: len(body) // 2])
            await self._strike(None)
        self._exchange.send(body)
        self._record.output_tokens, self._record.reasoning_tokens = usage.output, usage.reasoning
        self._end()

    def _extras(self, first_token_ns: int) -> Extras:
        record = self._record
        extras = timing_fields(
            self._dialect.timing,
            begun_ns=record.body_complete_ns or record.received_ns,
            admitted_ns=self._started_ns,
            first_token_ns=first_token_ns,
            ended_ns=now_ns(),
        )
        above, _, field = self._dialect.service_tier_path.rpartition(".")
        told = {} if field in ("standard", "none") else {field: self._served_tier}
        if not (told or self._diagnostics):
            return extras
        in_answer, in_usage = ({}, told) if above else (told, {})
        return Extras(answer={**extras.answer, **self._diagnostics, **in_answer}, usage={**extras.usage, **in_usage})

    def _send_headers(self, *, length: int | None = None) -> None:
        if self._headers_sent:
            return
        self._headers_sent = True
        streamed = length is None
        headers = [
            ("content-type", "text/event-stream; charset=utf-8" if streamed else "application/json"),
            ("x-request-id", self._record.request_id),
            ("openai-processing-ms", str((now_ns() - self._record.received_ns) // 1_000_000)),
            ("cache-control", "no-cache"),
        ]
        if length is not None:
            headers.append(("content-length", str(length)))
        headers += self._limit_headers
        self._exchange.send_headers(200, self._dialect.spoken(headers))

    async def _strike(self, sent: int | None, *, only: tuple[str, ...] | None = None) -> int:
        """Do what the faults do after `sent` tokens (None: after all); returns the nanoseconds stalled."""
        exchange = self._exchange
        for fault in self._faults.values():
            if (sent is not None and sent < fault.after) or (only is not None and fault.kind not in only):
                continue
            if fault.kind == "stall" and not self._stalled:
                self._stalled = True
                if fault.value is None:
                    await asyncio.Event().wait()
                await asyncio.sleep(_seconds(fault))
                return round(_seconds(fault) * 1e9)
            if fault.kind == "drop":
                exchange.abort()
                raise AnswerEnded
            if fault.kind == "reset":
                exchange.reset(fault.code)
                raise AnswerEnded
            if fault.kind == "truncate":
                self._end()
                raise AnswerEnded
            if fault.kind == "goaway" and not self._gone_away:
                self._gone_away = True
                exchange.go_away(cast(Literal["graceful", "hard"], fault.value), fault.last)
                if fault.value == "hard":
                    raise AnswerEnded
            if fault.kind == "malformed" and self._prompt.stream and not self._malformed:
                self._malformed = True
                exchange.send(MALFORMED)
        return 0

    def _end(self) -> None:
        for kind in ("idle_close", "idle_fin"):
            idle = self._faults.get(kind)
            if idle:
                self._exchange.close_when_idle(_seconds(idle), silently=kind == "idle_fin")
        self._exchange.end()


def _seconds(fault: Fault) -> float:
    return float(fault.value or 0)


def _status_error(fault: Fault) -> ApiError:
    status = int(float(fault.value or 500))
    headers: list[tuple[str, str]] = []
    if fault.retry_after is not None:
        headers = [
            ("retry-after", f"{fault.retry_after:g}"),
            ("retry-after-ms", f"{fault.retry_after * 1000:g}"),
        ]
    kind = {429: "rate_limit_exceeded", 401: "invalid_api_key"}.get(status, "emulated_fault")
    error_type = "server_error" if status >= 500 else "invalid_request_error"
    # LiteLLM knows a 401 by OpenAI's words for it alone.
    what = "Incorrect API key provided, by order" if status == 401 else "Emulated fault"
    return ApiError(status, f"{what}: {fault}.", type=error_type, code=kind, headers=headers)

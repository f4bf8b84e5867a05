"""Calls of the benchmarks, timed, and compared with what was asked for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import openai

from benchmarks._client import in_mode, settled, wishes
from benchmarks._provider import MODEL
from fastlane._clock import now_ns
from fastlane.emulator import RequestLog

MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


async def chunks(stream: Any) -> AsyncIterator[Any]:
    """Iterate over a stream of a client of either mode."""
    if isinstance(stream, openai.Stream):
        for chunk in stream:
            yield chunk
    else:
        async for chunk in stream:
            yield chunk


def has_content(chunk: Any) -> bool:
    """Return whether a chunk of a chat completion brings text."""
    return bool(chunk.choices and chunk.choices[0].delta.content)


class WrongAnswerError(Exception):
    """A call brought another text than it asked for: nothing that was timed counts."""


def check_answer(answer: Any, text: str) -> None:
    """Raise WrongAnswerError unless a completion has this text."""
    if answer.choices[0].message.content != text:
        raise WrongAnswerError(f"asked for {text!r}, got {answer.choices[0].message.content!r}")


async def call_ms(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call that asks for `text`."""
    headers = wishes(output_text=text, **asked)
    started = now_ns()
    answer = await settled(client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers))
    taken = now_ns() - started
    check_answer(answer, text)
    return taken / 1e6


async def time_call(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call of a client of either mode, as its caller has it, in milliseconds."""
    return await in_mode(client, partial(call_ms, text=text, **asked))


async def first_content_ms(
    client: Any, text: str | None = "Yes.", messages: Any = MESSAGES, *, more: Mapping[str, Any] = {}, **asked: object
) -> float:
    """Time a streamed call that asks for `text`, if that is not None, to its first content; it is read to its end.

    `more` are further arguments of the call.
    """
    headers = wishes(**({} if text is None else {"output_text": text}), **asked)
    arguments = {"model": MODEL, "messages": messages, "stream": True, "extra_headers": headers, **more}
    first: int | None = None
    read: list[str] = []
    started = now_ns()
    async for chunk in chunks(await settled(client.chat.completions.create(**arguments))):
        if has_content(chunk):
            first = first or now_ns()
            read.append(chunk.choices[0].delta.content)
    if first is None or (text is not None and "".join(read) != text):
        raise WrongAnswerError(f"asked for {text!r}, got {''.join(read)!r}")
    return (first - started) / 1e6


def connections(log: Iterable[RequestLog], arm: str) -> int:
    """Count the connections over which an arm's requests came, all of them HTTP/2."""
    requests = [request for request in log if (request.tag or "").split(":")[0] == arm]
    versions = {request.http_version for request in requests}
    if versions != {"HTTP/2"}:
        raise RuntimeError(f"{arm} was to use HTTP/2 and used {sorted(versions) or 'nothing'}")
    return len({request.connection_id for request in requests})


# Calls after pauses, in lanes


class LanePair(NamedTuple):
    """One call of each of two clients, in milliseconds to its first content, and whether the second was encoded."""

    first_ms: float
    second_ms: float
    encoded: bool


Groups = Sequence[tuple[tuple[str, ...], Any]]
"""Names, and the messages that are sent once for each of them after a pause, the second at once behind the first."""


async def in_lanes(
    each: Sequence[tuple[Sequence[openai.AsyncOpenAI], Groups]], rounds: int, *, apart_s: float, pause_s: float
) -> list[dict[str, list[LanePair]]]:
    """Have two clients in each lane send the same after every pause, in turns; return what they took, by name.

    Lanes begin one after the other, so that no call waits for the CPU of another lane's.
    """

    async def lane(clients: Sequence[Any], groups: Groups, start_s: float) -> dict[str, list[LanePair]]:
        await asyncio.sleep(start_s)
        pairs: dict[str, list[LanePair]] = {name: [] for names, _ in groups for name in names}
        async with clients[0], clients[1] as second:
            for client in clients:
                await first_content_ms(client, messages=groups[-1][1])
            for number, (names, messages) in itertools.product(range(rounds), groups):
                await asyncio.sleep(pause_s)
                taken: dict[tuple[int, str], float] = {}
                encoded = dict.fromkeys(names, False)
                for side, name in itertools.product((1, 0) if number % 2 else (0, 1), names):
                    taken[side, name] = await first_content_ms(clients[side], messages=messages)
                    if side and (record := second.last_call.request_encoding) is not None:
                        encoded[name] = record.form != "json"
                for name in names:
                    pairs[name].append(LanePair(taken[0, name], taken[1, name], encoded[name]))
        return pairs

    return await asyncio.gather(*(lane(*one, number * apart_s) for number, one in enumerate(each)))

"""A client in a process of its own, whose telemetry is configured by its environment, and which makes calls when asked.

A question has a number of calls: `["one_by_one", 300]` is answered with what each of them took, in microseconds,
`["many_at_once", 50000]` with how much of the process was in memory after every tenth of them, in bytes, when
everything had been exported or given up, Python's garbage had been collected, and free memory been given back.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastlane
import fastlane.telemetry
from benchmarks._at_once import TEXT
from benchmarks._child import questions, say
from benchmarks._transport import MESSAGES, WrongAnswerError
from fastlane._clock import now_ns
from fastlane.telemetry import Telemetry

_TIMES = 10
_AT_ONCE = 16


def _resident_bytes() -> int:
    """As Linux counts it; 0 elsewhere."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _one_by_one(client: fastlane.OpenAI, count: int) -> list[float]:
    took_us = []
    for _ in range(count):
        started = now_ns()
        answer = client.chat.completions.create(model="prepared-1", messages=MESSAGES)
        took_us.append((now_ns() - started) / 1e3)
        _check(answer)
    return took_us


async def _many_at_once(base_url: str, count: int, telemetry: Telemetry) -> list[int]:
    resident: list[int] = []

    async def work(client: fastlane.AsyncOpenAI, numbers: Iterator[int]) -> None:
        for _ in numbers:
            _check(await client.chat.completions.create(model="prepared-1", messages=MESSAGES))

    async with fastlane.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        for _ in range(_TIMES):
            numbers = iter(range(count // _TIMES))
            await asyncio.gather(*[work(client, numbers) for _ in range(_AT_ONCE)])
            telemetry.force_flush()
            gc.collect()
            with suppress(AttributeError, OSError, TypeError):  # of glibc's, which keeps free memory otherwise
                ctypes.CDLL(None).malloc_trim(0)
            resident.append(_resident_bytes())
    return resident


def _check(answer: Any) -> None:
    if answer.choices[0].message.content != TEXT:
        raise WrongAnswerError(f"a call brought {answer.choices[0].message.content!r}")


def _main() -> None:
    logging.disable(logging.CRITICAL)  # what an exporter says of its collector
    telemetry = fastlane.telemetry.configure()
    base_url = sys.argv[1]
    with fastlane.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        for kind, count in questions():
            if kind == "one_by_one":
                say(_one_by_one(client, count))
            else:
                say(asyncio.run(_many_at_once(base_url, count, telemetry)))


if __name__ == "__main__":
    _main()

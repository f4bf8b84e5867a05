"""Embedded providers for benchmarks, each behind its own wire, trusted by both sides in the same way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks._server import process_cpu_ns
from fastlane.emulator import Emulator, ProviderModel, preset
from fastlane.emulator.wire import Wire

MODEL = "benchmark"


@contextmanager
def providers(
    count: int, *, round_trip_time_s: float | None = None, http2: bool = True, model: ProviderModel | None = None
) -> Iterator[list[Emulator]]:
    """Start `count` providers, and trust all of them through SSL_CERT_FILE.

    Each has a wire of this round-trip time before it; None for loopback as it is. Without a `model` they have no delay
    of their own.
    """
    with ExitStack() as stack:
        wire = None if round_trip_time_s is None else Wire(round_trip_time_s=round_trip_time_s)
        started = [
            stack.enter_context(Emulator(model=model or preset("instant"), wire=wire, http2=http2))
            for _ in range(count)
        ]
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authorities = directory / "authorities.pem"
        authorities.write_text("".join(emulator.certificate_authority.read_text() for emulator in started))
        before = os.environ.get("SSL_CERT_FILE")
        os.environ["SSL_CERT_FILE"] = str(authorities)
        try:
            yield started
        finally:
            if before is None:
                del os.environ["SSL_CERT_FILE"]
            else:
                os.environ["SSL_CERT_FILE"] = before


@contextmanager
def provider_on_another_core(*, round_trip_time_s: float | None = None) -> Iterator[tuple[Emulator, str]]:
    """Start a provider, and keep it and this process apart as far as there is a second core and a way to say so."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        with providers(1, round_trip_time_s=round_trip_time_s) as (emulator,):
            yield emulator, "not pinned"
        return
    os.sched_setaffinity(0, cores[1:])  # which the provider's process inherits
    try:
        with providers(1, round_trip_time_s=round_trip_time_s) as (emulator,):
            os.sched_setaffinity(0, cores[:1])
            yield emulator, "client pinned to one, provider to the others"
    finally:
        os.sched_setaffinity(0, cores)


def provider_cpu_ns(emulator: Emulator) -> int | None:
    """CPU nanoseconds of the provider's process so far, as coarse as the system counts them; None where it does not."""
    return process_cpu_ns(emulator._process.pid)

"""Embedded providers for benchmarks, each behind its own wire, trusted by both sides in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import date
from typing import Any

from benchmarks._servers import apart, trusted
from fastlane.catalog import CatalogModel
from fastlane.emulator import Emulator, ProviderModel, RequestLog, preset
from fastlane.emulator.wire import Wire
from fastlane.providers import Fact, ProviderFacts, registered

MODEL = "benchmark"
ROUND_TRIP_TIME_S = 0.04
# Routing sends none of the caller's headers to other providers but those that are named.
ASKED = ("x-emulator-tag", "x-emulator-draw", "x-emulator-output-tokens")


@contextmanager
def providers(
    count: int = 1,
    *,
    round_trip_time_s: float | None = None,
    http2: bool = True,
    model: ProviderModel | None = None,
    models: Sequence[ProviderModel] = (),
) -> Iterator[list[Emulator]]:
    """Start `count` providers, or one for each of `models`, and trust all of them through SSL_CERT_FILE.

    Each has a wire of this round-trip time before it; None for loopback as it is. Without a model they have no delay of
    their own.
    """
    with ExitStack() as stack:
        wire = None if round_trip_time_s is None else Wire(round_trip_time_s=round_trip_time_s)
        started = [
            stack.enter_context(Emulator(model=one, wire=wire, http2=http2, seed=number if models else 0))
            for number, one in enumerate(models or [model or preset("instant")] * count)
        ]
        stack.enter_context(trusted(emulator.certificate_authority.read_text() for emulator in started))
        yield started


@contextmanager
def provider_on_another_core(*, round_trip_time_s: float | None = None) -> Iterator[tuple[Emulator, str]]:
    """Start a provider, and keep it and this process apart where there is a second core; yield how that is done too."""
    with apart() as move, providers(round_trip_time_s=round_trip_time_s) as (emulator,):
        yield emulator, move()


def fact(value: Any) -> Fact[Any]:
    """Return what is known of an embedded provider."""
    return Fact(value=value, source="https://localhost/docs/emulator", checked=date(2026, 11, 22), evidence="measured")


def with_facts(*started: Emulator, **facts: Any) -> AbstractContextManager[object]:
    """Register these facts of providers."""
    origins = [emulator.base_url.removesuffix("/v1") for emulator in started]
    return registered(ProviderFacts(slug="emulated", **facts), origins=origins)


def entry(name: str, base_url: str, **figures: Any) -> CatalogModel:
    """Return a model of a catalog that answers chat completions there, and needs no key."""
    return CatalogModel(name=name, base_url=base_url, quality=50.0, **figures)


def by_tag(log: Iterable[RequestLog]) -> dict[str, list[RequestLog]]:
    """Return the provider's records of each tag, in the order in which they came."""
    found: dict[str, list[RequestLog]] = {}
    for request in log:
        found.setdefault(request.tag or "", []).append(request)
    return found

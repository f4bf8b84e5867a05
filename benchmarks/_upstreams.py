"""Several emulated providers, each with times of its own, and the catalog in which they stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks._server import trusted
from fastlane.catalog import CatalogModel
from fastlane.emulator import Emulator, ProviderModel

# Routing sends none of the caller's headers to other providers but those that are named.
ASKED = ("x-emulator-tag", "x-emulator-draw", "x-emulator-output-tokens")


@contextmanager
def upstreams(models: Sequence[ProviderModel]) -> Iterator[list[Emulator]]:
    """Start a provider for each model, in a process of its own, and trust all of them through SSL_CERT_FILE."""
    with ExitStack() as stack:
        started = [stack.enter_context(Emulator(model=model, seed=number)) for number, model in enumerate(models)]
        stack.enter_context(trusted(emulator.certificate_authority for emulator in started))
        yield started


def entry(name: str, base_url: str, **figures: Any) -> CatalogModel:
    """Return a model of a catalog that answers chat completions there, and needs no key."""
    return CatalogModel(name=name, base_url=base_url, quality=50.0, **figures)

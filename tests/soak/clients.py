"""The clients of the run: which plays they have, and how long they live."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Sequence
from datetime import date
from functools import _lru_cache_wrapper
from random import Random
from typing import Any

from fastlane import (
    AsyncOpenAI,
    BoundedOutput,
    Connection,
    ContextTrimming,
    Hedging,
    OpenAI,
    Play,
    PromptCache,
    RateLimits,
    RequestEncoding,
    Routing,
    Urgency,
)
from fastlane.catalog import Catalog, CatalogModel
from fastlane.providers import Fact, ProviderFacts
from tests.soak.asking import MODEL
from tests.soak.plan import PLAYS, Scene

KEY_VARIABLE = "SOAK_API_KEY"
_HEADERS = ("x-emulator-tag", "x-emulator-fault", "x-emulator-manner", "x-emulator-prefill-ms")
_ENDPOINTS = ("/chat/completions", "/responses")


def _encoding() -> RequestEncoding:
    forms = Fact(
        value=("json", "json+gzip", "msgpack", "msgpack+gzip"),
        source="https://example.com",
        checked=date(2026, 11, 22),
        evidence="measured",
    )
    facts = ProviderFacts(slug="soak", encodings=dict.fromkeys(_ENDPOINTS, forms))  # type: ignore[arg-type]
    return RequestEncoding(facts=facts)


def _routing(urls: Sequence[str]) -> Routing:
    models = tuple(
        CatalogModel(
            name=name,
            model=MODEL,
            base_url=url,
            api_key_env=KEY_VARIABLE,
            first_token_s=((1_000, 0.02),),
            tokens_per_s=500,
            capabilities=frozenset({"tools", "json", "json_strict"}),
            endpoints=_ENDPOINTS,
        )
        for name, url in zip(("one", "other"), urls, strict=True)
    )
    return Routing(Catalog(models=models), forward_headers=_HEADERS)


def plays_of(name: str, urls: Sequence[str]) -> list[Play] | None:
    """Make a set of plays; None is that of a client that was made without saying which."""
    hedging = Hedging(budget=0.5, minimum_delay_s=0.02)
    match name:
        case "everything":
            return [
                Connection(), PromptCache(), ContextTrimming(), _encoding(),
                BoundedOutput(), hedging, Urgency(), RateLimits(),
            ]  # fmt: skip
        case "urgency":
            return [Connection(), PromptCache(), _encoding(), BoundedOutput(), Urgency(), RateLimits()]
        case "hedging":
            return [Connection(), hedging]
        case "bounded":
            return [Connection(), _encoding(), BoundedOutput(early_stop="at_once", reasks=1)]
        case "routing":
            return [_routing(urls), Connection(), PromptCache(), BoundedOutput(), hedging]
        case _:
            return None


class Clients:
    """All clients that are open, and the records of their calls."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        self.records: deque[Any] = deque()
        self.opened = 0
        self._urls = urls
        """Of two providers: one that speaks HTTP/2, one that does not."""
        self._seed = seed
        # With the number of the round after which each is closed.
        self._kept: dict[tuple[str, str, bool], tuple[Any, int]] = {}
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        # A process has one object of each play, as their pages advise: what it has learned stays with it.
        self._plays = {name: plays_of(name, self._urls) for name in (*PLAYS, "routing")}

    def forget(self) -> None:
        """Forget all that plays have learned, and what the package has computed before, which it may keep.

        Only while no client is open.
        """
        self._begin()
        for each in gc.get_objects():
            # (Some are proxies that load what they stand for when they are asked what they are.)
            if type(each) is _lru_cache_wrapper and str(each.__module__).startswith("fastlane"):
                each.cache_clear()

    def _made(self, scene: Scene, plays: Sequence[Play] | None) -> Any:
        self.opened += 1
        kind = AsyncOpenAI if scene.asynchronous else OpenAI
        url = self._urls[scene.target == "h1"]
        return kind(base_url=url, api_key="soak", only_plays=plays, on_call_end=[self.records.append])

    def own(self, scene: Scene) -> Any:
        """Open a client, with plays of its own."""
        return self._made(scene, plays_of(scene.plays, self._urls))

    def kept(self, scene: Scene, round_number: int) -> Any:
        """Return the client of many rounds that a scene of this kind uses."""
        key = (scene.target, scene.plays, scene.asynchronous)
        with self._lock:
            if key not in self._kept:
                lives = Random(f"{self._seed}:{key}:{round_number}").randint(0, 2)
                self._kept[key] = self._made(scene, self._plays[scene.plays]), round_number + lives
            return self._kept[key][0]

    def look(self) -> None:
        """Have every open client tell of streams that were garbage-collected."""
        for client, _ in self._kept.values():
            assert client.calls is not None

    def dying(self, round_number: int | None = None) -> list[Any]:
        """Give up the clients whose time has come, or all of them."""
        over = [key for key, (_, last) in self._kept.items() if round_number is None or last <= round_number]
        return [self._kept.pop(key)[0] for key in over]

    def begin_in_child(self) -> None:
        """What a fork's child keeps: the clients, and no records."""
        self.records.clear()
        self._lock = threading.Lock()

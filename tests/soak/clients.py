"""The clients of the run: which plays they have, and how long they live."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import _lru_cache_wrapper
from random import Random
from typing import Any

import fastlane
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
from fastlane.plays.routing.catalog.models import Capability
from fastlane.providers import Fact, ProviderFacts
from tests.soak.asking import MODEL
from tests.soak.plan import PLAYS, Scene

KEY_VARIABLE = "SOAK_API_KEY"
_HEADERS = ("x-emulator-tag", "x-emulator-fault", "x-emulator-manner", "x-emulator-prefill-ms")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the two providers are: one that speaks HTTP/2, one that does not."""

    h2: str
    h1: str


def _encoding() -> RequestEncoding:
    forms = Fact(
        value=("json", "json+gzip", "msgpack", "msgpack+gzip"),
        source="https://example.com",
        checked=date(2026, 11, 22),
        evidence="measured",
    )
    facts = ProviderFacts(slug="soak", encodings={"/chat/completions": forms, "/responses": forms})  # type: ignore[dict-item]
    # On an uplink as narrow as this a smaller body pays on loopback too.
    return RequestEncoding(facts=facts)


def _catalog(places: Places) -> Catalog:
    able: frozenset[Capability] = frozenset({"tools", "json", "json_strict"})
    endpoints = ("/chat/completions", "/responses")
    return Catalog(
        models=tuple(
            CatalogModel(
                name=name,
                model=MODEL,
                base_url=url,
                api_key_env=KEY_VARIABLE,
                first_token_s=((1_000, 0.02),),
                tokens_per_s=500,
                capabilities=able,
                endpoints=endpoints,
            )
            for name, url in (("one", places.h2), ("other", places.h1))
        )
    )


def plays_of(name: str, places: Places) -> list[Play] | None:
    """Make a set of plays; None is that of a client that was made without saying which."""
    hedging = Hedging(budget=0.5, minimum_delay_s=0.02)
    match name:
        case "default":
            return None
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
            route = Routing(_catalog(places), forward_headers=_HEADERS)
            return [route, Connection(), PromptCache(), BoundedOutput(), hedging]
        case _:
            raise ValueError(name)


@dataclass(slots=True)
class Kept:
    """A client that lives for some rounds."""

    client: Any
    dies_after: int


@dataclass
class Clients:
    """All clients that are open, and the records of their calls."""

    places: Places
    seed: int
    records: deque[Any] = field(default_factory=deque)
    opened: int = 0
    _plays: dict[str, list[Play] | None] = field(init=False)
    _kept: dict[tuple[str, str, bool], Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._plays = self._new_plays()

    def _new_plays(self) -> dict[str, list[Play] | None]:
        # A process has one object of each play, as their pages advise: what it has learned stays with it.
        return {name: plays_of(name, self.places) for name in (*PLAYS, "routing")}

    def forget(self) -> None:
        """Forget all that plays have learned, and what the package has computed before, which it may keep.

        Only while no client is open.
        """
        self._plays = self._new_plays()
        for each in gc.get_objects():
            # (Some are proxies that load what they stand for when they are asked what they are.)
            if type(each) is _lru_cache_wrapper and str(each.__module__).startswith("fastlane"):
                each.cache_clear()

    def _made(self, scene: Scene, plays: Sequence[Play] | None) -> Any:
        self.opened += 1
        kind = AsyncOpenAI if scene.asynchronous else OpenAI
        return kind(
            base_url=self.places.h1 if scene.target == "h1" else self.places.h2,
            api_key="soak",
            only_plays=plays,
            # A routed call's own client sends the rest; hooks are told of it once.
            on_call_end=[self.records.append],
        )

    def own(self, scene: Scene) -> Any:
        """Open a client, with plays of its own."""
        return self._made(scene, plays_of(scene.plays, self.places))

    def kept(self, scene: Scene, round_number: int) -> Any:
        """Return the client of many rounds that a scene of this kind uses."""
        key = (scene.target, scene.plays, scene.asynchronous)
        with self._lock:
            if key not in self._kept:
                lives = Random(f"{self.seed}:{key}:{round_number}").randint(0, 2)
                self._kept[key] = Kept(self._made(scene, self._plays[scene.plays]), round_number + lives)
            return self._kept[key].client

    def look(self) -> None:
        """Have every open client tell of streams that were garbage-collected."""
        for kept in self._kept.values():
            assert kept.client.calls is not None

    def dying(self, round_number: int | None = None) -> list[Any]:
        """Give up the clients whose time has come, or all of them."""
        over = [key for key, kept in self._kept.items() if round_number is None or kept.dies_after <= round_number]
        return [self._kept.pop(key).client for key in over]

    def begin_in_child(self) -> None:
        """What a fork's child keeps: the clients, and no records."""
        self.records.clear()
        self._lock = threading.Lock()


def model_of(scene: Scene) -> str:
    """Return what a scene's calls ask for."""
    return "fastlane/auto" if scene.target == "routed" else MODEL


def is_asynchronous(client: Any) -> bool:
    """Whether a client's calls are awaited."""
    return isinstance(client, fastlane.AsyncOpenAI)

"""The client that a framework is handed, in three kinds, and the proof that its calls went through it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

import openai
import pydantic

import fastlane
from fastlane import (
    BoundedOutput,
    CallRecord,
    Connection,
    Hedging,
    Play,
    PromptCache,
    RequestEncoding,
    Routing,
    Urgency,
)
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator, RequestLog
from fastlane.providers import Fact, ProviderFacts

KINDS = STOCK, DEFAULT, PLAYS = "stock", "default", "plays"
MODEL = "gpt-4.1-mini"
AUTO = "fastlane/auto"
QUESTION = "How long is the Danube?"
WEATHER = "18 degrees in Vienna"
LONG = "Answer as a hydrologist would. " * 1_000
"""30 kB of instructions: more than a connection sends at once."""


class River(pydantic.BaseModel):
    """The requested structure."""

    name: str
    length_km: int


def get_weather(city: str) -> str:
    """Say what the weather is like in a city."""
    assert city
    return WEATHER


def set_of_plays() -> list[Play]:
    """Every play that may stand beside the defaults, on the one model that the provider serves."""
    one = CatalogModel(
        name="one",
        model=MODEL,
        quality=50,
        first_token_s=((1_000, 0.05),),
        tokens_per_s=1_000,
        capabilities=frozenset({"tools", "json", "json_strict", "vision"}),
        endpoints=("/chat/completions", "/responses"),
    )
    taken: Fact[Any] = Fact(
        value=("json", "json+gzip"),
        source="https://localhost/docs/emulator",
        checked=date(2026, 11, 22),
        evidence="measured",
    )
    facts = ProviderFacts(slug="emulator", encodings={"/chat/completions": taken, "/responses": taken})
    return [
        Routing(Catalog(models=(one,))),
        Connection(),
        PromptCache(),
        BoundedOutput(reasks=1),
        Urgency(),
        RequestEncoding(facts=facts),
        Hedging(),
    ]


@dataclass
class Lane:
    """A synchronous and an asynchronous client of one kind, and what became of their calls."""

    kind: str
    emulator: Emulator
    reported: list[CallRecord] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model to ask for: with `Routing` there is none to name."""
        return AUTO if self.kind == PLAYS else MODEL

    @property
    def ours(self) -> dict[str, Any]:
        """What fastlane's clients take beside openai's arguments."""
        plays = set_of_plays() if self.kind == PLAYS else None
        # strict: a play that fails is a failed test, where in production the call would go out as it was written.
        return {"only_plays": plays, "on_call_end": [self.reported.append], "raise_play_errors": True}

    @cached_property
    def client(self) -> Any:
        return openai.OpenAI(**self.options) if self.kind == STOCK else fastlane.OpenAI(**self.ours, **self.options)

    @cached_property
    def async_client(self) -> Any:
        if self.kind == STOCK:
            return openai.AsyncOpenAI(**self.options)
        return fastlane.AsyncOpenAI(**self.ours, **self.options)

    @property
    def answered(self) -> list[RequestLog]:
        """The provider's record of what it was asked to generate."""
        return [each for each in self.emulator.log() if each.model is not None and each.path != "/v1/embeddings"]

    def went(
        self, calls: int, *, streams: int = 0, refused: int = 0, attempts: int = 1, structured: bool = False
    ) -> None:
        """Check that so many calls went to the provider, all of them by this client.

        `streams` of them were streamed, `refused` ended in an error, each took so many `attempts` at least, and had a
        structured answer. With the stock client only the provider can be asked.
        """
        log = self.answered
        assert [each.status for each in log].count(200) >= calls - refused
        assert {each.model for each in log} <= {MODEL}
        if self.kind == STOCK:
            assert self.reported == []
            assert len(log) == calls * attempts
            return
        records = self.reported
        assert len(records) == calls, [(each.endpoint, each.outcome) for each in records]
        assert [each.outcome for each in records].count("failed") == refused
        assert sum(each.stream for each in records) == streams
        # A second attempt of a hedged call may be reset before it was seen.
        assert calls * attempts <= len(log) <= sum(len(each.attempts) for each in records)
        assert {each.http_version for each in log} == {"HTTP/2"}
        assert len({each.connection_id for each in log}) == 1
        assert {each.transport for each in records} == {"fastlane"}
        if self.kind == PLAYS:
            self._planned(records, structured=structured)
        else:
            assert {each.plays for each in records} == {(repr(Connection()), repr(PromptCache()))}

    def _planned(self, records: list[CallRecord], *, structured: bool) -> None:
        for record in records:
            if structured:
                assert record.output is not None
                assert record.output.verdict == "valid"
            assert record.urgency is not None
            assert record.hedging is not None
            # The name has come through the framework as it was, and the play has chosen.
            assert record.routing is not None
            assert record.routing.asked == AUTO
            assert record.routing.model == ("one" if record.outcome == "completed" else None)


def is_river(value: Any) -> bool:
    """Whether an answer is valid for `River`, as an object or as JSON."""
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump()
    return River.model_validate(value).name != ""

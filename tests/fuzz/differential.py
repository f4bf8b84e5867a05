"""One document decoded by our decoder and by the stock client: any difference that a caller could see."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pydantic
from openai._models import construct_type
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from fastlane.decode import answer_decoder, event_decoder
from tests.fuzz import corpus, mutation

TYPES: dict[str, tuple[Any, list[corpus.Document], bool]] = {
    "ChatCompletionChunk": (ChatCompletionChunk, corpus.CHUNKS, True),
    "ChatCompletion": (ChatCompletion, corpus.COMPLETIONS, False),
    "CreateEmbeddingResponse": (CreateEmbeddingResponse, corpus.EMBEDDINGS, False),
    "Response": (Response, corpus.RESPONSES, False),
    "ResponseStreamEvent": (ResponseStreamEvent, corpus.EVENTS, True),
}
"""By name: the type, documents of it, and whether it is an event of a stream."""
STRANGERS = [*corpus.CHUNKS, *corpus.COMPLETIONS, *corpus.RESPONSES, *corpus.EVENTS]
_ABSENT = object()


def difference(ours: Any, stock: Any, path: str = "") -> str | None:
    """Where two decoded values differ, and in what; None if they are the same in every respect."""
    if type(ours) is not type(stock):
        return f"{path}: {ours!r} ({type(ours).__name__}) instead of {stock!r} ({type(stock).__name__})"
    if isinstance(ours, pydantic.BaseModel):
        if difference(type(ours.model_fields_set), type(stock.model_fields_set)) or (
            ours.model_fields_set != stock.model_fields_set
        ):
            return f"{path}: fields set {ours.model_fields_set!r} instead of {stock.model_fields_set!r}"
        if ours.__pydantic_private__ != stock.__pydantic_private__:
            return f"{path}: private attributes {ours.__pydantic_private__!r}"
        return difference(ours.__dict__, stock.__dict__, path) or difference(
            ours.__pydantic_extra__, stock.__pydantic_extra__, f"{path}<extra>"
        )
    if isinstance(ours, dict):
        if list(ours) != list(stock):
            return f"{path}: keys {list(ours)} instead of {list(stock)}"
        return next(filter(None, (difference(ours[key], stock[key], f"{path}.{key}") for key in ours)), None)
    if isinstance(ours, list):
        if len(ours) != len(stock):
            return f"{path}: {len(ours)} items instead of {len(stock)}"
        return next(
            filter(None, (difference(*pair, f"{path}[{i}]") for i, pair in enumerate(zip(ours, stock, strict=True)))),
            None,
        )
    return None if repr(ours) == repr(stock) else f"{path}: {ours!r} instead of {stock!r}"


def _outcome(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - the same error is the same behaviour
        return type(error)


def visible_difference(ours: Any, stock: Any) -> str | None:
    """What `difference` finds, and what callers compare: equality, representations and dumps."""
    found = difference(ours, stock)
    if found is not None:
        return found
    asked: dict[str, Callable[[Any], Any]] = {
        "repr": repr,
        "str": str,
        "model_dump": lambda one: repr(one.model_dump()),
        "model_dump_json": lambda one: one.model_dump_json(),
        "unset left out": lambda one: one.model_dump_json(exclude_unset=True, by_alias=True),
        "defaults left out": lambda one: repr(one.model_dump(exclude_defaults=True, round_trip=True)),
        "to_dict": lambda one: repr(one.to_dict()),
        "to_json": lambda one: one.to_json(),
        "copy": lambda one: repr(one.model_copy(deep=True)),
        "extra": lambda one: repr(one.model_extra),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, ask in asked.items():
            one, other = _outcome(lambda ask=ask: ask(ours)), _outcome(lambda ask=ask: ask(stock))  # type: ignore[misc]
            if one != other:
                return f"{name}: {one} instead of {other}"
        # A value that is no number equals nothing, itself included.
        if ours != stock and "nan" not in repr(stock):
            return "=="
    return None


class Differential:
    """Runs documents of one type through our decoder and the stock client, and counts what each accepted."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.cast_to, self.documents, self._event = TYPES[name]
        self._draw = random.Random(f"{name} {seed}")
        decoder = event_decoder(self.cast_to) if self._event else answer_decoder(self.cast_to)
        assert decoder is not None
        self.decode = decoder
        self._seen = 0
        self.accepted: Counter[str] = Counter()

    def payloads(self, count: int) -> Iterator[bytes]:
        """The documents as they are, then mutated ones, a third of them of made-up documents of the type."""
        for document in self.documents[:count]:
            yield mutation.written(document, self._draw)
        for _ in range(count - len(self.documents)):
            made = self._draw.random() < 0.35
            document = mutation.sample(self.cast_to, self._draw) if made else self._draw.choice(self.documents)
            yield mutation.mutated(document, self._draw, STRANGERS)

    def stock(self, data: bytes) -> Any:
        """What the stock client makes of a document; `_ABSENT` where it raises or gives no model."""
        try:
            value = json.loads(data.decode())
            if self._event and isinstance(value, dict) and value.get("error"):
                return _ABSENT
            found = construct_type(type_=self.cast_to, value=value)
        except Exception:  # noqa: BLE001 - then our decoder has to leave it to the stock client
            return _ABSENT
        return found if isinstance(found, pydantic.BaseModel) else _ABSENT

    def check(self, data: bytes) -> str | None:
        """The first difference between our decoder and the stock client, or None."""
        self._seen += 1
        stock, found = self.stock(data), self.decode(data)
        self.accepted["stock"] += stock is not _ABSENT
        if found is None:
            return None
        self.accepted["ours"] += 1
        if stock is _ABSENT:
            return f"{found!r} where the stock client gives no object"
        compare = visible_difference if self._seen % 8 == 0 or self._seen <= len(self.documents) else difference
        return compare(found, stock)

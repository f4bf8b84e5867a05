"""Decoded answers and events are the stock client's, field by field, or left to the stock client."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import openai
import pydantic
import pytest
from openai._models import construct_type
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponsesServerEvent, ResponseStreamEvent

from fastlane.decode import _decoders, answer_decoder, event_decoder, probes as _seams
from fastlane.decode._one_pass import one_pass_of
from fastlane.decode._proof import same
from fastlane.decode._types import told_apart
from tests.fuzz import corpus
from tests.fuzz.differential import TYPES, Differential

_CHUNK: dict[str, Any] = corpus.CHUNKS[0]
EMPTY: list[Any] = [None, "", 0, {}, []]


def written(document: Any) -> bytes:
    return json.dumps(document).encode()


def stock(cast_to: Any, data: bytes) -> Any:
    return construct_type(type_=cast_to, value=json.loads(data))


@pytest.mark.parametrize("name", TYPES)
def test_mutated_documents_decode_as_in_stock_or_fall_back(name: str) -> None:
    differential = Differential(name, seed=20261120)
    for data in differential.payloads(500):
        assert differential.check(data) is None, data
    assert differential.accepted["ours"] > differential.accepted["stock"] * 0.7


@pytest.mark.parametrize(
    ("model", "document"), [(ChatCompletionChunk, corpus.CHUNKS[0]), (ChatCompletion, corpus.COMPLETIONS[0])]
)
def test_plain_documents_are_made_in_one_pass(model: Any, document: dict[str, Any]) -> None:
    decode = one_pass_of(model, fallback=lambda _: None, is_event=model is ChatCompletionChunk)
    assert decode is not None
    (choice,) = document["choices"]
    # An error beside the fields of an event ends a stream; further in it is a field as any other.
    for data in map(written, (document, document | {"choices": [choice | {"error": 1}]})):
        assert same(decode(data), stock(model, data))


@pytest.mark.parametrize("number", ["9007199254740993", "1" + "0" * 308, "-1" + "0" * 30, "NaN", "-0", "1e400"])
def test_numbers_beyond_float_decode_as_in_stock(number: str) -> None:
    data = written(corpus.EMBEDDINGS[0]).replace(b"0.0123", number.encode())
    found = answer_decoder(CreateEmbeddingResponse)(data)  # type: ignore[misc]
    assert same(found, stock(CreateEmbeddingResponse, data))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b'"x"', b"{", b"\xff", b'\xef\xbb\xbf{"id":"x"}', "{}".encode("utf-16"), b"[" * 100_000,
        written(_CHUNK | {"error": {"message": "overloaded"}}), written(_CHUNK | {"_fields_set": ["id"]}),
        written(_CHUNK | {"_BaseModel__cls": 1}),
    ],
)  # fmt: skip
def test_undecidable_document_is_left_to_the_stock_client(data: bytes) -> None:
    decode = event_decoder(ChatCompletionChunk)
    assert decode is not None
    assert decode(data) is None


@pytest.mark.parametrize(
    ("cast_to", "document"),
    [
        *((ChatCompletionChunk, {**_CHUNK, "error": empty}) for empty in EMPTY),
        (ChatCompletion, corpus.COMPLETIONS[16]),
    ],
)
def test_document_with_an_error_field_decodes_as_in_stock(cast_to: Any, document: dict[str, Any]) -> None:
    data = written(document)
    decode = (answer_decoder if cast_to is ChatCompletion else event_decoder)(cast_to)
    assert same(decode(data), stock(cast_to, data))  # type: ignore[misc]


@pytest.mark.parametrize("union", [ResponseStreamEvent, ResponsesServerEvent], ids=["stream", "socket"])
def test_event_type_is_found_last_and_beside_inner_types(union: Any) -> None:
    decode = event_decoder(union)
    assert decode is not None
    for document in corpus.EVENTS:
        data = written({"stream_id": "a", **dict(reversed(document.items()))})
        found = decode(data)
        assert found is None or same(found, stock(union, data))
    assert decode(written({"type": "no.such.event"})) is None
    assert decode(b'{"type":"response.output_text.delta","type":"no.such.event"}') is None


def test_only_the_types_that_are_proven_are_decoded() -> None:
    class Own(ChatCompletion):
        pass

    no_answers: list[Any] = [Own, str, object, openai.types.Completion, dict[str, Any], Any, [], ChatCompletionChunk]
    no_events: list[Any] = [Own, ChatCompletion, Response, object, {}]
    assert [answer_decoder(cast_to) for cast_to in no_answers] == [None] * len(no_answers)
    assert [event_decoder(cast_to) for cast_to in no_events] == [None] * len(no_events)


class Noted(pydantic.BaseModel, extra="allow"):
    value: Any = None
    _note: Any = None


def test_values_that_differ_in_one_respect_are_not_the_same() -> None:
    whole = {"value": [1, {"a": 1, "b": 2}], "more": 1}
    others = [Noted.model_validate(whole) for _ in range(6)]
    assert same(others[0], others[1])
    others[0].value = [1, {"b": 2, "a": 1}]
    others[1].value = [1]
    others[2].value = [True, {"a": 1, "b": 2}]
    others[3].__pydantic_extra__["more"] = 1.0  # type: ignore[index]
    others[4].__pydantic_fields_set__.clear()
    others[5]._note = ""
    for number, other in enumerate([*others, {}]):
        assert not same(Noted.model_validate(whole), other), number


def test_decoder_of_a_custom_class_is_not_kept() -> None:
    class Own(ChatCompletion):
        pass

    assert answer_decoder(Own) is event_decoder(Own) is None
    kept = weakref.ref(Own)
    del Own
    gc.collect()
    assert kept() is None


def test_changed_object_construction_uses_the_stock_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlane.decode import _proof

    def construct(*, value: Any, type_: Any, **_: Any) -> Any:
        made: Any = construct_type(value=value, type_=type_)
        made.__pydantic_fields_set__.add("noted")
        return made

    monkeypatch.setattr(_proof, "construct_type", construct)
    monkeypatch.setattr(_decoders, "_decoders", {})
    monkeypatch.setattr(_seams, "_found", {})
    for cast_to, _, event in TYPES.values():
        assert (event_decoder if event else answer_decoder)(cast_to) is None


def test_many_threads_may_ask_for_the_first_decoder_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decoders, "_decoders", {})
    data, found = written(corpus.COMPLETIONS[1]), []
    ready = threading.Barrier(8)

    def ask() -> None:
        ready.wait()
        decode = answer_decoder(ChatCompletion)
        assert decode is not None
        found.append(decode(data))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(same(one, stock(ChatCompletion, data)) for one in found)


class First(openai.BaseModel):
    kind: str
    number: int | None = None


class Second(openai.BaseModel):
    kind: str
    word: str | None = None


def test_union_without_required_discriminator_is_not_decoded() -> None:
    assert told_apart((First, Second)) is None

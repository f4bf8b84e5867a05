from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

import fastlane
from fastlane import BoundedOutput, Call, CallRecord, ConfigurationError, Connection, Play, PromptCache, Urgency
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL, async_chat
from tests.session_play import SessionPlay
from tests.waiting import Form, inner_of


@dataclass(frozen=True, slots=True)
class Mark(SessionPlay):
    """Says on the record that it planned."""

    name: str = "mark"

    def plan(self, call: Call) -> Call:
        return call.with_body(f"marked {self.name}", metadata={"mark": self.name})


def ask(client: Any) -> None:
    client.chat.completions.create(model=MODEL, messages=MESSAGES)


def test_copy_keeps_plays_hooks_and_log(form: Form, arguments: dict[str, Any]) -> None:
    records: list[CallRecord] = []
    with form.make(
        fastlane, **arguments, only_plays=[Mark()], on_call_end=[records.append], raise_play_errors=True
    ) as client:
        copied = client.with_options(timeout=7.0).copy(max_retries=1)
        ask(copied)

        (record,) = records
        assert record.plays == (repr(Mark()),)
        assert record.changes == ("marked mark",)
        assert type(inner_of(copied)) is type(inner_of(client))
        assert client.calls == copied.calls == tuple(records)
        assert client.last_call is copied.last_call
        copied.close()
        assert client.is_closed()


def test_with_plays_adds_to_the_plays_of_the_client(client: fastlane.OpenAI) -> None:
    first = client.with_plays(Mark("a"))
    second = first.with_plays(Connection(idle_s=9.0), Mark("b"))
    ask(first)
    ask(second)

    assert first.calls[0].plays == (repr(Connection()), repr(PromptCache()), repr(Mark("a")))
    assert second.calls[0].plays == (repr(Connection(idle_s=9.0)), repr(PromptCache()), repr(Mark("b")))
    assert (first.calls[0].transport, second.calls[0].transport) == ("fastlane", "fastlane")


def test_copy_with_a_play_replaces_its_subclasses(client: fastlane.OpenAI) -> None:
    class Own(Connection):
        pass

    class Other(Connection):
        pass

    added = Connection(http2="never")

    assert client.copy(only_plays=[Own(), Mark(), Other()]).with_plays(added).plays == (added, Mark())


@pytest.mark.parametrize("plays", [[], [Mark()], [Connection(), Mark()]])
def test_copy_with_only_plays_has_exactly_these(client: fastlane.OpenAI, plays: list[fastlane.Play]) -> None:
    copied = client.with_plays(Mark("before")).copy(only_plays=plays)
    ask(copied)

    assert copied.calls[0].plays == tuple(map(repr, plays))


def test_copy_of_a_subclass_that_names_its_plays_adds_plays(arguments: dict[str, Any]) -> None:
    class Own(fastlane.OpenAI):
        def __init__(self, **options: Any) -> None:
            self.beside = fastlane.OpenAI(**arguments)
            super().__init__(plays=[Mark("own")], **options)

    with Own(**arguments) as client:
        copied = client.with_plays(Mark("other"))
        plain = client.with_options(timeout=3.0)
        ask(copied)
        ask(plain)

        assert copied.calls[0].changes == ("marked other",)
        assert client.calls[0].changes == ("marked own",)
        assert (type(copied), type(plain)) == (Own, Own)
        assert [type(play) for play in copied.beside.plays] == [Connection, PromptCache]


@pytest.mark.parametrize(
    ("copied", "message"),
    [
        (
            lambda client: client.copy(plays=[Mark()], only_plays=[]),
            r"either plays=.* adds .* or only_plays=.* replaces",
        ),
        (lambda client: client.copy(only_plays=[Mark]), r"instances of fastlane\.Play"),
        (lambda client: client.with_plays(Mark("a"), Mark("b")), "twice"),
    ],
)
def test_copy_refuses_what_the_constructor_refuses(client: fastlane.OpenAI, copied: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        copied(client)


def test_azure_copy_keeps_what_azure_adds(provider: Emulator, azure_arguments: dict[str, Any]) -> None:
    with fastlane.AzureOpenAI(**azure_arguments, only_plays=[Mark()]) as client:
        copied = client.with_options(timeout=7.0).copy(api_version="2025-01-01")
        ask(copied)

        assert type(copied) is fastlane.AzureOpenAI
        assert provider.log()[0].path.endswith("?api-version=2025-01-01")
        assert client.calls[0].changes == ("marked mark",)


# Which plays a client has, by what it was made with


CLIENTS = ("OpenAI", "AsyncOpenAI")


@dataclass(frozen=True, slots=True)
class OwnConnection(Connection):
    """A connection play of an application's."""


@pytest.mark.parametrize(
    ("plays", "expected"),
    [
        (None, [Connection(), PromptCache()]),
        ([], [Connection(), PromptCache()]),
        ([Urgency(max_concurrency=8)], [Connection(), PromptCache(), Urgency(max_concurrency=8)]),
        ([BoundedOutput(), Connection(idle_s=9.0)], [Connection(idle_s=9.0), PromptCache(), BoundedOutput()]),
        ([PromptCache(breakpoints=True)], [Connection(), PromptCache(breakpoints=True)]),
        ([OwnConnection(idle_s=9.0)], [OwnConnection(idle_s=9.0), PromptCache()]),
    ],
    ids=["none", "empty", "another", "same-type", "second-default", "subclass"],
)
@pytest.mark.parametrize("name", CLIENTS)
def test_plays_adds_to_the_defaults(arguments: dict[str, Any], name: str, plays: Any, expected: list[Play]) -> None:
    client = getattr(fastlane, name)(**arguments, plays=plays)

    assert list(map(repr, client.plays)) == list(map(repr, expected))


# What applications do with a client besides calling it


@pytest.mark.asyncio
async def test_async_key_may_be_a_function(provider: Emulator, arguments: dict[str, Any]) -> None:
    async def key() -> str:
        return "sk-test"

    async with fastlane.AsyncOpenAI(**{**arguments, "api_key": key}) as client:
        await async_chat(client)

        assert len(client.calls) == len(provider.log()) == 1


def test_unreferenced_client_is_freed_while_responses_are_kept(arguments: dict[str, Any]) -> None:
    client = fastlane.OpenAI(**arguments)
    answers = ENTRIES["chat"](client), ENTRIES["chat_streamed"](client)
    held = weakref.ref(client)
    del client
    gc.collect()

    assert held() is None
    assert all(answers)

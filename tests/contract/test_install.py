"""`fastlane.install()` has openai's classes and module make fastlane's clients, and nothing else is ever patched."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI

import fastlane
from fastlane import Call, CallRecord, Connection
from fastlane.bench import arms_named
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL
from tests.programs import printed_by
from tests.session_play import SessionPlay
from tests.waiting import Form, inner_of

PATCHED = ("_ModuleClient", "_AzureModuleClient")
# Imported before anything is installed, as an application's modules are.
CLASSES: tuple[type[Any], ...] = (OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI)


@dataclass(frozen=True, slots=True)
class Mark(SessionPlay):
    def plan(self, call: Call) -> Call:
        return call.with_body("marked", metadata={"mark": "1"})


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """openai's classes are its own again when a test ends."""
    yield
    fastlane.uninstall()


@pytest.fixture
def module(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The openai module, set up as an application does."""
    monkeypatch.setattr(openai, "api_key", arguments["api_key"])
    monkeypatch.setattr(openai, "base_url", arguments["base_url"] + "/")
    monkeypatch.setattr(openai, "http_client", None)
    openai._reset_client()
    yield openai
    if openai.http_client is not None:  # the stock client puts its own there
        openai.http_client.close()
    fastlane.uninstall()  # before the module's client is made again
    openai._reset_client()


OBSERVED = (
    "chat", "chat_streamed", "chat_parse", "chat_raw", "chat_stream_helper", "responses", "embeddings", "models_list",
)  # fmt: skip


def test_calls_on_the_module_are_observed(module: Any) -> None:
    reported: list[CallRecord] = []
    fastlane.install(only_plays=[Connection(), Mark()], on_call_end=[reported.append], raise_play_errors=True)
    for entry in OBSERVED:
        ENTRIES[entry](module)

    assert [record.outcome for record in reported] == ["completed"] * len(OBSERVED)
    assert [record.changes for record in reported] == [("marked",)] * 6 + [()] * 2


def test_uninstall_restores_the_identical_objects(module: Any) -> None:
    before, classes = dict(vars(openai)), [{**vars(kind), "__new__": None} for kind in CLASSES]
    fastlane.install()
    assert all(getattr(openai, name) is not before[name] for name in PATCHED)
    module.models.list()
    fastlane.install(on_call_end=[type])
    module.models.list()
    fastlane.uninstall()
    fastlane.uninstall()

    after = dict(vars(openai))
    assert [{**vars(kind), "__new__": None} for kind in CLASSES] == classes
    # These the stock client too fills with empty mappings when it is first used.
    kept = before.keys() - {"default_headers", "default_query"}
    assert [name for name in kept if before[name] is not after[name]] == []


def test_install_replaces_connections_of_earlier_calls(module: Any) -> None:
    records: list[CallRecord] = []
    module.models.list()
    fastlane.install(on_call_end=[records.append])
    module.models.list()

    assert [record.transport for record in records] == ["fastlane"]


def test_settings_that_cannot_work_are_refused_at_once(module: Any) -> None:
    stock = openai._ModuleClient
    with pytest.raises(fastlane.ConfigurationError):
        fastlane.install(only_plays=[Connection])  # type: ignore[list-item]

    assert openai._ModuleClient is stock


def ask(client: Any) -> None:
    client.chat.completions.create(model=MODEL, messages=MESSAGES)


@pytest.mark.parametrize("name", ["OpenAI", "AzureOpenAI"])
def test_stock_classes_make_fastlane_clients_until_uninstall(
    name: str, form: Form, arguments: dict[str, Any], azure_arguments: dict[str, Any]
) -> None:
    options = azure_arguments if name == "AzureOpenAI" else arguments
    records: list[CallRecord] = []
    fastlane.install(plays=[Mark()], on_call_end=[records.append])
    ours = form.make(openai, name, **options)
    ask(ours)
    ask(ours.with_options(max_retries=1))
    fastlane.uninstall()
    ask(ours)
    stock = form.make(openai, name, **options)
    ask(stock)

    kind = f"Async{name}" if form.asynchronous else name
    assert isinstance(inner_of(ours), getattr(fastlane, kind))
    assert isinstance(inner_of(ours), getattr(openai, kind))
    assert type(inner_of(stock)) is getattr(openai, kind)
    assert [(record.transport, record.changes) for record in records] == [("fastlane", ("marked",))] * 3
    ours.close()
    stock.close()


def test_framework_subclasses_and_earlier_clients_stay(stock: OpenAI, arguments: dict[str, Any], provider: Any) -> None:
    class Counted:
        made = 0

        def __new__(cls, **options: Any) -> Any:
            Counted.made += "api_key" in options
            return super().__new__(cls)

    class Framework(OpenAI, Counted):
        pass

    fastlane.install()
    client = Framework(**arguments)
    for each in (client, client.copy(), stock, stock.with_options(timeout=9), copy.copy(stock)):
        ask(each)

    assert Counted.made == 2
    assert (type(client), type(client.copy()), type(stock)) == (Framework, Framework, OpenAI)
    assert [log.http_version for log in provider.log()] == ["HTTP/1.1"] * 5
    client.close()


@pytest.mark.parametrize("kind", CLASSES)
def test_installed_classes_keep_their_signatures(kind: type[Any]) -> None:
    before = inspect.signature(kind)
    fastlane.install()

    assert inspect.signature(kind) == before
    with pytest.raises(openai.OpenAIError, match=r"[Cc]redentials"):
        kind()


@pytest.mark.parametrize("name", ["baseline", "baseline-async"])
def test_stock_arms_of_the_bench_stay_stock(name: str, arguments: dict[str, Any]) -> None:
    fastlane.install()

    assert type(arms_named([name])[0].make_client(**arguments)) in CLASSES


COMPARING = """
import json, sys
import openai
import openai.resources.chat.completions, openai._base_client, openai._streaming, openai._legacy_response

def taken(modules):
    found = {}
    for name in modules:
        for attribute, value in vars(sys.modules[name]).items():
            found[f"{name}.{attribute}"] = id(value)
            if isinstance(value, type):
                for inner, member in vars(value).items():
                    found[f"{name}.{attribute}.{inner}"] = id(member)
    return found

libraries = ("openai", "httpx2", "httpcore2", "httpx", "httpcore")
modules = [name for name in sys.modules if name.partition(".")[0] in libraries]
loaded = {name: sys.modules[name] for name in modules}
before = taken(modules)
kept = [dict(vars(module)) for module in loaded.values()]
import fastlane
after = taken(modules)
# pydantic completes a model when it is first needed.
changed = [name for name in before if before[name] != after.get(name) and "__pydantic_" not in name]
print(json.dumps({"changed": changed, "legacy": "httpx" in sys.modules and "httpx" not in loaded}))
"""


@pytest.mark.slow
def test_import_patches_nothing_and_loads_no_httpx() -> None:
    assert json.loads(printed_by("-c", COMPARING)) == {"changed": [], "legacy": False}

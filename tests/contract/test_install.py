"""`fastlane.install()` replaces the module-level client, and nothing else is ever patched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, CallRecord, Connection
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL
from tests.session_play import SessionPlay

PATCHED = ("_ModuleClient", "_AzureModuleClient")


@dataclass(frozen=True, slots=True)
class Mark(SessionPlay):
    def plan(self, call: Call) -> Call:
        return call.with_body("marked", metadata={"mark": "1"})


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
    fastlane.uninstall()
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


def test_install_with_plays_adds_to_the_defaults(module: Any) -> None:
    records: list[CallRecord] = []
    for settings in ({"plays": [Mark()]}, {"only_plays": [Mark()]}):
        fastlane.install(**settings, on_call_end=[records.append])  # type: ignore[arg-type]
        module.chat.completions.create(model=MODEL, messages=MESSAGES)

    added, exact = ([play.partition("(")[0] for play in record.plays] for record in records)
    assert added == ["Connection", "PromptCache", "Mark"]
    assert exact == ["Mark"]


def test_uninstall_restores_the_identical_objects(module: Any) -> None:
    before = dict(vars(openai))
    fastlane.install()
    assert all(getattr(openai, name) is not before[name] for name in PATCHED)
    module.models.list()
    fastlane.install(on_call_end=[type])
    module.models.list()
    fastlane.uninstall()
    fastlane.uninstall()

    after = dict(vars(openai))
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
    ran = subprocess.run([sys.executable, "-c", COMPARING], capture_output=True, text=True, timeout=300, check=False)

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"changed": [], "legacy": False}

"""Clients with every play on reach only their providers, and start, write and run nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fastlane.emulator import Emulator
from tests.programs import ROOT, printed_by

_PROBE = ROOT / "scripts/audit_probe.py"

Watch = Callable[[str, Mapping[str, str]], dict[str, Any]]
"""From code and variables of its environment to what it did: see `scripts/audit_probe.py`."""

_CALLS = """
import asyncio, os
import {package} as package

{plays}
asked = {{"model": "{model}", "messages": [{{"role": "user", "content": "Name a river."}}]}}
client = package.OpenAI(**plays())
for stream in (False, True, False):
    answer = client.chat.completions.create(**asked, stream=stream)
    assert list(answer) if stream else answer.choices
client.models.list()

async def later():
    async with package.AsyncOpenAI(**plays()) as client:
        await client.chat.completions.create(**asked)
        async for _ in await client.chat.completions.create(**asked, stream=True): pass
        await client.embeddings.create(model="m", input="A river.")

asyncio.run(later())
client.close()
"""
_EVERY_PLAY = """
from fastlane import *
from fastlane.catalog import Catalog, CatalogModel

def model(name):
    settings = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key_env": "ZQ7_KEY"}
    return CatalogModel(name=name, first_token_s=((1, 0.01),), tokens_per_s=100.0, **settings)

def plays():
    routing = Routing(Catalog(models=(model("near"), model("far"))))
    others = [PromptCache(), ContextTrimming(), BoundedOutput(), Hedging(budget=1.0)]
    others += [RequestEncoding(), Connection(), Urgency()]
    return {"only_plays": [routing, *others]}
"""
OURS = _CALLS.format(package="fastlane", plays=_EVERY_PLAY, model="fastlane/auto")
STOCK = _CALLS.format(package="openai", plays="plays = dict", model="m")


def variables(provider: Emulator) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-test", "ZQ7_KEY": "sk-other"}


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Run code, and give what it did; what it prints last is under "printed"."""

    def run(code: str, variables: Mapping[str, str]) -> dict[str, Any]:
        file = tmp_path / "watched.py"
        file.write_text(code, encoding="utf-8")
        environment = {"PYTHONPATH": str(ROOT), **variables}
        said = printed_by("-B", str(_PROBE), "run", str(file), cwd=tmp_path, environment=environment)
        *printed, last = said.splitlines()
        did: dict[str, Any] = {**json.loads(last), "printed": printed, "file": str(file)}
        return did

    return run


@pytest.fixture
def did(watch: Watch, provider: Emulator) -> dict[str, Any]:
    return watch(OURS, variables(provider))


@pytest.mark.slow
def test_plays_reach_only_the_provider_and_change_nothing(
    did: dict[str, Any], watch: Watch, provider: Emulator
) -> None:
    port = urlsplit(provider.base_url).port
    assert set(did["network"]) == {f"socket.connect ('127.0.0.1', {port})"}
    assert len(provider.log()) >= 7

    # What openai, its HTTP library and what these import do where fastlane is not: the name of the system is asked of
    # `uname` for a header, and packages that are there, such as numpy and trio, look for their libraries.
    stock = watch(STOCK, variables(provider))
    assert set(did["written"] + did["processes"]) - set(stock["written"] + stock["processes"]) == set()

    # Data that becomes code would be found here: pickles, marshalled code, functions made of it. Openai's own functions
    # are copied, with one of the functions that they call replaced.
    package = f"{ROOT}/fastlane/"  # and not any path with that name in it: the repository's folder is called so too
    new = {one for one in did["data_as_code"] if one.partition(" in ")[2].startswith(package)}
    assert {one.rpartition("/")[2] for one in new} == {"resources.py:_with"}
    # What is compiled without being a file: decoders, whose source is made of the names of openai's fields.
    made = [one.partition(" in ") for one in did["compiled"]]
    ours = {(title, by.removeprefix(package)) for title, _, by in made if by.startswith(package)}
    assert {by for _, by in ours} == {"decode/_build.py"}
    assert [title for title, _ in ours if not re.fullmatch(r"<fastlane: [\w ]+>", title)] == []


def test_files_read_are_packages_and_certificates(did: dict[str, Any], provider: Emulator) -> None:
    from scripts.audit import outside

    expected = {str(provider.certificate_authority), did["file"], "/etc/os-release", "/etc/lsb-release", "/dev/null"}
    assert [one for one in outside(did) if one not in expected and not one.startswith(str(ROOT))] == []


def test_watch_notices_network_files_and_processes(watch: Watch) -> None:
    code = """
import os, pickle, socket, subprocess, sys
socket.socket().connect_ex(("127.0.0.1", 9))
try: socket.getaddrinfo("unknown.invalid", 443)
except OSError: pass
open("written", "w").close()
subprocess.run([sys.executable, "-c", ""])
pickle.loads(pickle.dumps(OSError))
"""
    did = watch(code, {})

    assert "socket.connect ('127.0.0.1', 9)" in did["network"]
    assert any("unknown.invalid" in one for one in did["network"])
    assert "written" in did["written"]
    assert any("subprocess.Popen" in one for one in did["processes"])
    assert len(did["data_as_code"]) == 1

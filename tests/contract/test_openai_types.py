"""`import fastlane` loads openai's types when one is first asked for: the same names, classes and modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from fastlane.compat.openai_types import _holders

NAMES = """
import json, pkgutil, openai.types
names = {"openai.types"}
for found in pkgutil.walk_packages(openai.types.__path__, "openai.types."):
    if found.ispkg:
        names.add(found.name)
held = {}
for package in sorted(names):
    module = __import__(package, fromlist=["_"])
    public = [name for name in dir(module) if not name.startswith("_") and name != "annotations"]
    held[package] = {
        name: [getattr(value, "__module__", ""), getattr(value, "__qualname__", str(value))]
        for name in public
        for value in [getattr(module, name)]
        if type(value).__name__ != "module"
    }
print(json.dumps(held))
"""


def printed(code: str, **variables: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FASTLANE_")} | variables
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_every_package_holds_the_same_names() -> None:
    assert printed(f"import fastlane\n{NAMES}") == printed(f"import openai\n{NAMES}")


def test_modules_wait_until_a_name_is_asked_for() -> None:
    loaded = "import json, sys; count = lambda: sum(name.startswith('openai.types.') for name in sys.modules)"
    before, after = printed(f"import fastlane, openai\n{loaded}\na = count(); openai.types.Batch\nprint([a, count()])")
    assert before < len(list(Path(openai.types.__path__[0]).rglob("*.py"))) / 2
    assert after > before


@pytest.mark.parametrize(
    "code",
    [
        "found = openai.types.responses.Response",
        "from openai.types import responses; found = responses.Response",
        "from openai.types.responses import *; found = Response",
        "from fastlane.types.responses import Response; found = Response",
        "import pickle; found = pickle.loads(pickle.dumps(openai.types.responses.Response))",
    ],
)
def test_a_type_is_found_however_it_is_asked_for(code: str) -> None:
    here = "print(json.dumps(found is sys.modules['openai.types.responses.response'].Response))"
    assert printed(f"import fastlane, json, openai, sys\n{code}\n{here}") is True


def test_an_unknown_name_is_none() -> None:
    ask = "print(json.dumps([hasattr(openai.types, name) for name in ('Nothing', '__wrapped__', 'chat')]))"
    assert printed(f"import fastlane, json, openai\n{ask}") == [False, False, True]


@pytest.mark.parametrize(
    ("code", "variables"), [("import openai, fastlane", {}), ("import fastlane", {"FASTLANE_DISABLED": "1"})]
)
def test_nothing_changes_for_an_application_that_was_first_or_wants_none(code: str, variables: dict[str, str]) -> None:
    loader = "import json, openai; print(json.dumps(type(openai.types.__spec__.loader).__name__))"
    assert printed(f"{code}\n{loader}", **variables) == "SourceFileLoader"


@pytest.mark.parametrize(
    "source", [b"import os", b"from .a import b as c", b"from .a import b", b"from os import path as path", b"x = 1"]
)
def test_a_package_that_does_more_is_executed(source: bytes) -> None:
    assert _holders(source) is None

"""Whatever an application imports from openai, it can import from fastlane."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import openai
import pytest

import fastlane
import fastlane.providers
from fastlane.compat.openai_modules import OPENAI_MODULES
from tests.programs import printed_by, run_python

OURS = {"OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI", "Client", "AsyncClient"}
# Classes of openai that fastlane has no form of: they are offered as they are.
STOCK = {"BedrockOpenAI", "AsyncBedrockOpenAI"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {*openai.__all__, "BedrockOpenAI", "pydantic_function_tool", "AssistantEventHandler"}
        - OURS
        - {"__title__", "__version__"}
    ),
)
def test_every_openai_export_is_exported_unchanged(name: str) -> None:
    assert getattr(fastlane, name) is getattr(openai, name)


def test_completion_of_the_package_offers_public_names_alone() -> None:
    modules = {"batch", "catalog", "experiments", "prompts", "reports", "schemas", "telemetry"} | OPENAI_MODULES
    assert set(dir(fastlane)) == {*fastlane.__all__, *openai.__all__} | modules


ROOT = Path(fastlane.__file__).parent
# What type checkers read: one file for each.
TYPED = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for tree in OPENAI_MODULES for path in ROOT.glob(f"{tree}/**/*.pyi")
)
UNTYPED = ["types.chat.chat_completion_role", "lib._parsing", "resources.evals.evals"]


@pytest.mark.parametrize("name", [*TYPED, *UNTYPED])
def test_submodule_of_openai_is_the_same_module(name: str) -> None:
    try:
        expected = importlib.import_module(f"openai.{name}")
    except ModuleNotFoundError:
        pytest.skip("the installed openai does not have it")

    assert importlib.import_module(f"fastlane.{name}") is expected


@pytest.mark.parametrize("name", TYPED)
def test_type_stub_matches_the_runtime_module(name: str) -> None:
    """Each is a package: pyright warns of a stub alone (`name.pyi`) that no module of that name lies beside it."""
    stub = ROOT.joinpath(*name.split("."), "__init__.pyi")

    assert stub.read_text() == f"from openai.{name} import *\n"
    assert list(stub.parent.glob("*.py*")) == [stub]


def test_submodules_include_what_openai_documents() -> None:
    types = {"types", "types.chat", "types.responses", "types.beta.threads", "types.webhooks"}

    assert types | {"auth", "helpers", "lib.streaming.chat", "pagination", "resources.chat.completions"} <= set(TYPED)


FRESH = """
import sys
import fastlane
assert not [name for name in sys.modules if name.startswith(("fastlane.types", "fastlane.resources", "fastlane.lib"))]
assert "openai.resources.chat" not in sys.modules
from fastlane.types.chat import ChatCompletion, ChatCompletionChunk
from fastlane.types.chat.chat_completion import Choice
import fastlane.types.responses, fastlane.pagination
from fastlane.resources.embeddings import Embeddings
from fastlane.lib.streaming.chat import ChatCompletionStream
import openai
from openai.types.chat import chat_completion
from openai.types.responses import Response
assert ChatCompletion is chat_completion.ChatCompletion and Choice is chat_completion.Choice
assert fastlane.types.responses.Response is Response
assert fastlane.types is openai.types and fastlane.lib is openai.lib
assert openai.types.__spec__.name == "openai.types" and openai.types.chat.__spec__.name == "openai.types.chat"
assert sum(name.endswith("types.chat.chat_completion") for name in sys.modules) == 2
assert issubclass(fastlane.resources.embeddings.Embeddings, openai.resources.embeddings.Embeddings)
"""


def test_submodules_in_a_fresh_process_are_lazy_and_shared() -> None:
    ran = run_python("-c", FRESH)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", ["types.chta", "resources.chat.nothing", "pagination.deeper"])
def test_submodule_that_openai_does_not_have_is_an_error(name: str) -> None:
    assert importlib.util.find_spec("fastlane.types.chta") is None
    with pytest.raises(ModuleNotFoundError, match=f"fastlane.{name}"):
        importlib.import_module(f"fastlane.{name}")


def test_openai_providers_module_is_importable_beside_ours() -> None:
    from openai.providers import bedrock

    assert fastlane.providers.bedrock is bedrock
    assert fastlane.providers.facts_of("https://api.openai.com:443").slug == "openai"
    with pytest.raises(ImportError, match="cannot import name 'unknown'"):
        from fastlane.providers import unknown  # type: ignore[attr-defined] # noqa: F401


@pytest.mark.parametrize("name", ["chat", "responses", "embeddings", "api_key", "base_url", "http_client"])
def test_module_level_client_is_pointed_to_install(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"call fastlane.install\(\) and use openai.{name}"):
        getattr(fastlane, name)


def test_no_exported_client_is_the_stock_class() -> None:
    names = [name for name in dir(openai) if not name.startswith("_") and name not in STOCK]
    classes = {name: getattr(fastlane, name) for name in names if isinstance(vars(openai).get(name), type)}
    clients = {name for name, value in classes.items() if issubclass(value, openai.OpenAI | openai.AsyncOpenAI)}

    assert clients == OURS


def test_unknown_exported_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'fastlane' has no attribute 'OpenIA'"):
        getattr(fastlane, "OpenIA")  # noqa: B009 - spelled so that no checker objects


# `import fastlane` loads openai's types when one is first asked for: the same names, classes and modules


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
    return json.loads(printed_by("-c", code, environment=variables))


@pytest.mark.slow
def test_lazy_packages_have_the_names_of_openai() -> None:
    assert printed(f"import fastlane\n{NAMES}") == printed(f"import openai\n{NAMES}")


def test_openai_type_modules_load_on_first_access() -> None:
    loaded = "import json, sys; count = lambda: sum(name.startswith('openai.types.') for name in sys.modules)"
    before, after = printed(f"import fastlane, openai\n{loaded}\na = count(); openai.types.Batch\nprint([a, count()])")
    assert before < len(list(Path(openai.types.__path__[0]).rglob("*.py"))) / 2
    assert after > before


@pytest.mark.parametrize(
    "code",
    [
        "from openai.types.responses import *; found = Response",
        "import pickle; found = pickle.loads(pickle.dumps(openai.types.responses.Response))",
    ],
)
def test_openai_type_is_importable_by_every_path(code: str) -> None:
    here = "print(json.dumps(found is sys.modules['openai.types.responses.response'].Response))"
    assert printed(f"import fastlane, json, openai, sys\n{code}\n{here}") is True


def test_unknown_openai_type_is_no_attribute() -> None:
    ask = "print(json.dumps([hasattr(openai.types, name) for name in ('Nothing', '__wrapped__', 'chat')]))"
    assert printed(f"import fastlane, json, openai\n{ask}") == [False, False, True]


@pytest.mark.parametrize(
    ("code", "variables"), [("import openai, fastlane", {}), ("import fastlane", {"FASTLANE_DISABLED": "1"})]
)
def test_lazy_types_are_off_when_openai_came_first_or_disabled(code: str, variables: dict[str, str]) -> None:
    loader = "import json, openai; print(json.dumps(type(openai.types.__spec__.loader).__name__))"
    assert printed(f"{code}\n{loader}", **variables) == "SourceFileLoader"

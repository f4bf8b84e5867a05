"""The house stays as it is drawn in docs/design.md: what no linter knows about this project."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

ROOT = Path(__file__).parent.parent
PYTHON_TREES = ("fastlane", "benchmarks")

# What would tie the project to one machine, or give a secret away.
FORBIDDEN_TEXT = {
    "a path of one machine": re.compile(r"(?<![\w/.])/(?:home|Users|root|work|mnt)/\w"),
    # A real one has digits and both cases; "sk-nobody-may-see-this" in a test has not.
    "an OpenAI key": re.compile(r"\bsk-(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{20,}"),
    "another provider's key": re.compile(r"\b(?:csk-|gsk_|sk-ant-|xai-|AIza)[\w-]{20,}"),
    "a private key": re.compile(r"-----BEGIN (?:\w+ )?PRIVATE KEY-----"),
}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".sh", ".cfg", ".json", ""}
SKIPPED_DIRECTORIES = {"site", "bench-results", "build", "dist", "__pycache__"}

# Packages that are named after openai's, and hold what those hold.
OF_OPENAI = ("lib", "pagination", "resources", "types")

Check = Callable[[Path], list[str]]


def modules(root: Path, *trees: str) -> Iterator[Path]:
    for tree in trees or PYTHON_TREES:
        yield from sorted((root / tree).rglob("*.py"))


@functools.lru_cache(1_000)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_names(path: Path, package: str) -> Iterator[str]:
    """Every module that a file imports, relative ones resolved against `package`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def plays(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "fastlane/plays").glob("*/__init__.py"))


def no_play_imports_another(root: Path) -> list[str]:
    names = {play: f"fastlane.plays.{play}" for play in plays(root)}
    return [
        f"{path.relative_to(root)} imports {name}"
        for play in names
        for path in modules(root, f"fastlane/plays/{play}")
        for name in imported_names(path, ".".join(path.relative_to(root).parent.parts))
        for other in names.keys() - {play}
        if name == names[other] or name.startswith(f"{names[other]}.")
    ]


def layers(root: Path) -> dict[str, int]:
    """The row of each package in the layers of import-linter's contract, counted from the lowest."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if "containers" in contract)
    return {name: number for number, row in enumerate(reversed(rows)) for name in re.split(r" [|:] ", row)}


def no_text_names_a_module_of_a_layer_above(root: Path) -> list[str]:
    """A module can be imported, or looked up in `sys.modules`, by its name: the linter sees neither."""
    rows = layers(root)
    found = []
    for path in modules(root, "fastlane"):
        own = path.relative_to(root / "fastlane").with_suffix("").parts[0]
        for node in ast.walk(parsed(path)):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if not re.fullmatch(r"fastlane(\.\w+)+", text) or own not in rows:
                continue
            named = root / text.replace(".", "/")
            is_module = named.is_dir() or named.with_suffix(".py").exists()
            if is_module and rows.get(text.split(".")[1], 0) > rows[own]:
                found.append(f"{path.relative_to(root)} names {text}")
    return found


def no_part_of_the_package_imports_its_root(root: Path) -> list[str]:
    """The root imports nearly everything. The command line may: nothing imports that."""
    rows = layers(root)
    found = []
    for path in modules(root, "fastlane"):
        own = path.relative_to(root / "fastlane").with_suffix("").parts[0]
        if own not in rows or rows[own] >= rows["emulator"]:
            continue
        for name in imported_names(path, ".".join(path.relative_to(root).parent.parts)):
            parts = name.split(".")
            is_module = len(parts) > 1 and list((root / "fastlane").glob(f"{parts[1]}*"))
            if parts[0] == "fastlane" and len(parts) == 2 and not is_module:
                found.append(f"{path.relative_to(root)} imports {name}")
    return found


def import_graph(root: Path) -> dict[str, set[str]]:
    """What each module of the package imports, type-only imports and imports inside functions included."""
    files = {
        ".".join((path.parent if path.name == "__init__.py" else path.with_suffix("")).relative_to(root).parts): path
        for path in modules(root, "fastlane")
    }
    graph = {}
    for name, path in files.items():
        imported = set(imported_names(path, ".".join(path.relative_to(root).parent.parts))) & files.keys() - {name}
        # `from .package import module` needs the module, and not what else stands in the package.
        graph[name] = {one for one in imported if not any(other.startswith(f"{one}.") for other in imported)}
    return graph


def no_more_than_five_modules_import_each_other(root: Path) -> list[str]:
    graph = import_graph(root)
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen, waiting = set[str](), [name]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[name] = seen
    knots = {frozenset(one for one in reached[name] if name in reached[one]) for name in graph}
    return [", ".join(sorted(knot)) for knot in knots if len(knot) > 5]


def every_module_says_in_one_sentence_what_it_is_responsible_for(root: Path) -> list[str]:
    found = []
    for path in modules(root):
        docstring = ast.get_docstring(parsed(path)) or ""
        first = docstring.split("\n\n")[0]
        if not first or "\n" in first or not (first.endswith((".", ":"))):
            found.append(f"{path.relative_to(root)}: {first!r}")
    return found


def one_clock(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} imports {name}"
        for path in modules(root, "fastlane")
        if path.relative_to(root).as_posix() != "fastlane/_clock.py"
        for name in imported_names(path, ".".join(path.relative_to(root).parent.parts))
        if name == "time"
    ]


def no_code_asks_which_provider_it_is(root: Path) -> list[str]:
    """What is known of a provider is a fact in a file; a text in the code that names one would be an `if`."""
    # OpenAI's is the protocol itself, and one name is a word of the language. What emulates others may name them.
    names = {path.stem for path in (root / "fastlane/providers").glob("*.toml")}
    names -= {"azure_openai", "openai", "origins", "together", "unknown"}
    found = []
    for path in modules(root, "fastlane") if names else ():
        if path.is_relative_to(root / "fastlane/emulator"):
            continue
        tree = parsed(path)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{path.relative_to(root)}: {node.value!r:.60}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if re.search(rf"\b({'|'.join(sorted(names))})\b", node.value, re.IGNORECASE)
        ]
    return found


def nothing_names_a_machine_or_holds_a_key(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if any(part in SKIPPED_DIRECTORIES or (part.startswith(".") and part != ".ci") for part in parts):
            continue
        if path.suffix not in TEXT_SUFFIXES or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for what, pattern in FORBIDDEN_TEXT.items():
            found += [f"{path.relative_to(root)}: {what}: {match.group()[:7]}..." for match in pattern.finditer(text)]
    return found


def every_room_is_in_the_drawing(root: Path) -> list[str]:
    drawing = (root / "docs/design.md").read_text()
    rooms = [path.name for path in sorted((root / "fastlane").glob("*.py"))]
    rooms += [f"{path.parent.name}/" for path in sorted((root / "fastlane").glob("*/__init__.py"))]
    return [room for room in rooms if f"\n  {room} " not in drawing]


def every_page_is_in_the_navigation(root: Path) -> list[str]:
    listed = set(re.findall(r"^\s*- .*?([\w./-]+\.md)$", (root / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")}
    return [f"not in the navigation: {page}" for page in sorted(pages - listed)] + [
        f"no such page: {page}" for page in sorted(listed - pages)
    ]


# Where private parts of openai and of the HTTP library may be used. The transport stands below compat, and makes the
# library's responses.
AT_THE_BORDER = ("fastlane/compat/", "fastlane/decode/", "fastlane/transport/drivers/requests.py")
FOREIGN = ("openai", "httpx2", "httpx", "httpcore2", "httpcore")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def foreign_attributes() -> frozenset[str]:
    """Private attributes of the objects of openai and of httpx2 that a client meets."""
    azure: Any = {"api_key": "x", "api_version": "1", "azure_endpoint": "https://x"}
    clients: list[Any] = [openai.OpenAI(api_key="x"), openai.AsyncOpenAI(api_key="x")]
    clients += [openai.AzureOpenAI(**azure), openai.AsyncAzureOpenAI(**azure)]
    request = httpx2.Request("POST", "https://x", json={})
    response = httpx2.Response(200, request=request, json={})
    objects: list[Any] = [openai, openai.Stream, openai.AsyncStream, openai.APIStatusError, httpx2.ConnectError("")]
    objects += [request, request.url, request.headers, request.stream, response, clients[0].chat, *clients]
    for client in clients:
        objects += [client._client, client._client._transport, client._client.cookies]
    # Made where a stream or a body is opened.
    late = {"_cast_to", "_decoder", "_iterator", "_options", "_raw_stream"}
    return frozenset(filter(is_private, late.union(*map(dir, objects))))


def defined_in(tree: ast.Module) -> set[str]:
    """Names that a module gives to members of its own classes, or defines."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_named(node.value, "self"):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):  # a field of a dataclass
            found.add(node.target.id)
    return found


def is_named(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def private_attributes(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield each use of a private attribute: of what, and its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.value, node.attr
        elif isinstance(node, ast.Call) and is_named(node.func, "getattr", "hasattr", "setattr", "delattr"):
            name = getattr(node.args[1], "value", None)
            if isinstance(name, str) and is_private(name):
                yield node.args[0], name


def private_parts_of_openai_are_used_at_the_border_alone(root: Path) -> list[str]:
    trees = {path: parsed(path) for path in modules(root, "fastlane")}
    own = {path: defined_in(tree) for path, tree in trees.items()}
    ours = set().union(*own.values())
    found = []
    for path, tree in trees.items():
        place = path.relative_to(root).as_posix()
        if place.startswith(AT_THE_BORDER):
            continue
        found += [
            f"{place} imports {name}"
            for name in imported_names(path, "")
            if name.partition(".")[0] in FOREIGN and any(map(is_private, name.split(".")))
        ]
        for owner, name in private_attributes(tree):
            is_foreign = ast.unparse(owner).partition(".")[0] in FOREIGN or (
                # As far as the text says it: a method that a client overrides, and a member of ours, are none.
                ast.unparse(owner) != "super()"
                and name in foreign_attributes()
                and name not in (ours if is_named(owner, "self", "cls") else own[path])
            )
            if is_foreign:
                found.append(f"{place}: {ast.unparse(owner)}.{name}")
    return found


def no_test_looks_into_another_package(root: Path) -> list[str]:
    """So that a package can be built anew without a change to the tests of others: see `tool.fastlane.tests`."""
    found = []
    declared = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["fastlane"]["tests"]
    allowed = {f"fastlane.{name}" for name in declared["public"] + declared["seams"]}
    for path in modules(root, "tests"):
        room = path.relative_to(root / "tests").parts[0].removesuffix(".py")
        own = declared["of"].get(room, [room.removeprefix("test_")])
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            whole = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module not in allowed:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [
                f"{path.relative_to(root)}:{node.lineno} imports {name}"
                for name in whole
                if name.count(".") > 1
                and name.startswith("fastlane.")
                and not {name, name.rpartition(".")[0]} & allowed
                and name.split(".")[1] not in (*own, *OF_OPENAI)
            ]
    return found


CHECKS: tuple[Check, ...] = (
    no_play_imports_another,
    no_text_names_a_module_of_a_layer_above,
    no_part_of_the_package_imports_its_root,
    no_more_than_five_modules_import_each_other,
    every_module_says_in_one_sentence_what_it_is_responsible_for,
    one_clock,
    no_code_asks_which_provider_it_is,
    nothing_names_a_machine_or_holds_a_key,
    private_parts_of_openai_are_used_at_the_border_alone,
    every_room_is_in_the_drawing,
    every_page_is_in_the_navigation,
    no_test_looks_into_another_package,
)


@pytest.mark.slow  # `make check` runs it
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_repository_passes_every_layout_check(check: Check) -> None:
    assert check(ROOT) == []


def test_public_names_are_sorted_and_exist() -> None:
    fastlane = importlib.import_module("fastlane")

    assert fastlane.__all__ == sorted(fastlane.__all__)
    assert len(fastlane.__all__) <= 40
    assert [name for name in fastlane.__all__ if not hasattr(fastlane, name)] == []


def build(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"mkdocs.yml": "nav: []\n", "docs/plays/index.md": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CONTRACT = """
[[tool.importlinter.contracts]]
containers = ["fastlane"]
layers = ["emulator | doctor", "client", "transport : errors"]
"""

# A check that cannot fail says nothing: each is shown a house that breaks its rule.
BROKEN: dict[Check, dict[str, str]] = {
    no_play_imports_another: {
        "fastlane/plays/hedging/__init__.py": "from .. import routing",
        "fastlane/plays/routing/__init__.py": "",
    },
    no_text_names_a_module_of_a_layer_above: {
        "fastlane/transport/pool.py": "import_module('fastlane.client.clients')",
        "fastlane/client/clients.py": "",
        "pyproject.toml": CONTRACT,
    },
    no_part_of_the_package_imports_its_root: {
        "fastlane/client/clients.py": "from .. import OpenAI",
        "pyproject.toml": CONTRACT,
    },
    no_more_than_five_modules_import_each_other: {
        f"fastlane/engine/step_{number}.py": f"from . import step_{(number + 1) % 6}" for number in range(6)
    },
    every_module_says_in_one_sentence_what_it_is_responsible_for: {"fastlane/engine/call.py": '"""No sentence"""'},
    one_clock: {"fastlane/engine/call.py": "def late() -> None:\n    from time import monotonic\n"},
    no_code_asks_which_provider_it_is: {
        "fastlane/engine/call.py": "if 'api.some_host.com' in url and name == 'some_host': ...",
        "fastlane/providers/some_host.toml": "",
    },
    nothing_names_a_machine_or_holds_a_key: {"docs/index.md": "key: s" + "k-proj-" + "a1B2" * 10},
    private_parts_of_openai_are_used_at_the_border_alone: {"fastlane/engine/flow.py": "from openai import _models"},
    every_room_is_in_the_drawing: {"fastlane/_attic.py": "", "docs/design.md": "the house"},
    every_page_is_in_the_navigation: {"docs/lost.md": ""},
    no_test_looks_into_another_package: {
        "tests/bench/test_run.py": "from fastlane.engine.flow import run_call",
        "pyproject.toml": "[tool.fastlane.tests]\npublic = []\nseams = []\nof = {}\n",
    },
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_layout_check_fails_on_a_broken_tree(check: Check, tmp_path: Path) -> None:
    assert len(check(build(tmp_path, BROKEN[check]))) >= 1

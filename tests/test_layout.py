"""The house stays as it is drawn in docs/design.md: what no linter knows about this project."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

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

Check = Callable[[Path], list[str]]


def modules(root: Path, *trees: str) -> Iterator[Path]:
    for tree in trees or PYTHON_TREES:
        yield from sorted((root / tree).rglob("*.py"))


def imported_names(path: Path, package: str) -> Iterator[str]:
    """Every module that a file imports, relative ones resolved against `package`."""
    for node in ast.walk(ast.parse(path.read_text())):
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


def every_module_says_in_one_sentence_what_it_is_responsible_for(root: Path) -> list[str]:
    found = []
    for path in modules(root):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
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
        tree = ast.parse(path.read_text())
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


CHECKS: tuple[Check, ...] = (
    no_play_imports_another,
    every_module_says_in_one_sentence_what_it_is_responsible_for,
    one_clock,
    no_code_asks_which_provider_it_is,
    nothing_names_a_machine_or_holds_a_key,
    every_room_is_in_the_drawing,
    every_page_is_in_the_navigation,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_house(check: Check) -> None:
    assert check(ROOT) == []


def test_public_names_are_sorted_and_exist() -> None:
    fastlane = importlib.import_module("fastlane")

    assert fastlane.__all__ == sorted(fastlane.__all__)
    assert [name for name in fastlane.__all__ if not hasattr(fastlane, name)] == []


def build(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"mkdocs.yml": "nav: []\n", "docs/plays/index.md": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# A check that cannot fail says nothing: each is shown a house that breaks its rule.
BROKEN: dict[Check, dict[str, str]] = {
    no_play_imports_another: {
        "fastlane/plays/hedging/__init__.py": "from .. import routing",
        "fastlane/plays/routing/__init__.py": "",
    },
    every_module_says_in_one_sentence_what_it_is_responsible_for: {"fastlane/engine/call.py": '"""No sentence"""'},
    one_clock: {"fastlane/engine/call.py": "def late() -> None:\n    from time import monotonic\n"},
    no_code_asks_which_provider_it_is: {
        "fastlane/engine/call.py": "if 'api.some_host.com' in url and name == 'some_host': ...",
        "fastlane/providers/some_host.toml": "",
    },
    nothing_names_a_machine_or_holds_a_key: {"docs/index.md": "key: s" + "k-proj-" + "a1B2" * 10},
    every_room_is_in_the_drawing: {"fastlane/_attic.py": "", "docs/design.md": "the house"},
    every_page_is_in_the_navigation: {"docs/lost.md": ""},
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_check_can_fail(check: Check, tmp_path: Path) -> None:
    assert len(check(build(tmp_path, BROKEN[check]))) >= 1


@pytest.mark.parametrize(
    "source",
    [
        "from ..routing.play import Routing",
        "from fastlane.plays.routing import Routing",
        "import fastlane.plays.routing",
        "from fastlane.plays import routing",
    ],
)
def test_a_play_that_imports_another_is_found_however_it_is_written(source: str, tmp_path: Path) -> None:
    house = build(tmp_path, {"fastlane/plays/hedging/__init__.py": source, "fastlane/plays/routing/__init__.py": ""})

    assert len(no_play_imports_another(house)) >= 1


def test_a_machine_path_is_found(tmp_path: Path) -> None:
    house = build(tmp_path, {"docs/index.md": "see /" + "home/me/fastlane"})

    assert nothing_names_a_machine_or_holds_a_key(house) == ["docs/index.md: a path of one machine: /" + "home/m..."]

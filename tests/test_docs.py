"""What README and documentation show is true: examples run, commands exist, every metric is defined."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import openai
import pytest
import typer
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import benchmarks.__main__
from fastlane import CallRecord, user_action
from fastlane.emulator import Emulator
from fastlane.plays import load_all
from fastlane.records import Attempt, Timeline, Usage, WireStamps
from fastlane.records.record import Outcome
from fastlane.records.section import section_classes
from tests.programs import printed_by, run_python

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = Sybil(parsers=[PythonCodeBlockParser()])


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_documented_example_runs(
    page: Path, provider: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    # openai's module-level client remembers what it found when it was first looked at, by any code.
    for name in ("api_key", "base_url", "http_client"):
        monkeypatch.setattr(openai, name, None)
    if "telemetry.configure(" not in page.read_text():
        run(page)
        return
    # What configures telemetry sets providers for its whole process.
    code = "import sys, tests.test_docs as docs; docs.run(docs.Path(sys.argv[1]))"
    printed_by("-c", code, str(page), environment={"FASTLANE_TRACE_DIR": str(tmp_path)})


def run(page: Path) -> None:
    # The examples of a page belong together: each sees the names of those before it.
    for example in EXAMPLES.parse(page).examples():
        example.evaluate()


@pytest.mark.slow  # mypy reads all of openai's types
def test_code_of_the_first_pages_passes_strict_mypy(tmp_path: Path) -> None:
    for page in ("README.md", "docs/quickstart.md"):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        (tmp_path / Path(page).with_suffix(".py").name).write_text("".join(blocks))
    command = ("-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(tmp_path))
    done = run_python(*command, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```(?:bash|console|)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    spoken = re.findall(r"`((?:make|fastlane|\.venv/bin/\S+) [^`]+)`", page.read_text())
    return [line.removeprefix("$ ").split("#")[0].strip() for block in blocks for line in block.splitlines()] + spoken


def exists(command: str) -> bool:
    words = command.split()
    match words:
        case ["make", target, *_]:
            return re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
        case ["fastlane" | ".venv/bin/fastlane", name, *rest]:
            from fastlane.cli import command_line

            commands = getattr(typer.main.get_command(command_line()), "commands", {})
            within = getattr(commands.get(name), "commands", None)
            return name in commands and (within is None or not rest or rest[0] in within)
        case [".venv/bin/python", "-m", "benchmarks", name, *_]:
            return name in benchmarks.__main__.names()
        case ["bash", script, *_]:
            return (ROOT / script).is_file()
        case _:
            return True


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_exists(page: Path) -> None:
    assert [command for command in commands(page) if not exists(command)] == []


def test_benchmarks_that_tables_name_exist() -> None:
    named_in_tables = re.findall(r"\| `([a-z_]+)` \|$", (ROOT / "docs/benchmarks.md").read_text(), re.MULTILINE)

    assert set(named_in_tables) - set(benchmarks.__main__.names()) == set()
    assert len(named_in_tables) > 20


@pytest.mark.parametrize(
    "command",
    ["make sandwich", "fastlane sandwich", "fastlane trace sandwich", ".venv/bin/python -m benchmarks sandwich"],
)
def test_command_that_does_not_exist_is_found(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```bash\n$ {command}\n```\n")

    assert [command for command in commands(page) if not exists(command)] == [command]


def properties(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")}


def fields(kind: type[typing.Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


load_all()
SECTIONS = {section.name for section in section_classes()}


def test_home_page_picture_matches_the_benchmarks_page() -> None:
    picture = (ROOT / "docs/images/before_after.svg").read_text()
    shown = re.findall(r">([\d.]+) (?:ms|us)<", picture)
    page, readme = (ROOT / "docs/benchmarks.md").read_text(), (ROOT / "README.md").read_text()

    assert len(shown) == 6
    assert [figure for figure in shown if not re.search(rf"(?<![\d.]){figure}[ ;]", page)] == []
    assert [figure for figure in shown if f"{figure} ms" not in readme] == []


METRICS = (
    properties(Timeline)
    | fields(Timeline)
    | properties(CallRecord) - SECTIONS
    | properties(WireStamps)
    | fields(Usage)
    | {"application_end_to_end_s"}
)


def test_every_metric_outcome_and_attribute_is_defined() -> None:
    measuring, reference = ((ROOT / f"docs/{page}.md").read_text() for page in ("measuring", "api"))

    assert [metric for metric in sorted(METRICS) if not re.search(rf"`(?:record\.)?{metric}`", measuring)] == []
    assert [outcome for outcome in typing.get_args(Outcome) if f"- `{outcome}`: " not in measuring] == []
    assert [attribute for attribute in sorted(fields(CallRecord)) if f"`{attribute}`" not in reference] == []


def test_names_in_the_definitions_exist() -> None:
    named_in_page = set(re.findall(r"`(?:record\.)?([a-z_]+_(?:s|ns))`", (ROOT / "docs/measuring.md").read_text()))

    known = METRICS | fields(CallRecord) | fields(Attempt) | fields(WireStamps) | properties(user_action)
    assert named_in_page - known - {"_s", "_ns"} == set()


# Modules whose names applications import, and where each is explained name by name.
REFERENCE = {
    module: page
    for page in sorted((ROOT / "docs/reference").glob("*.md"))
    for module in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("module", sorted(REFERENCE))
def test_every_public_name_is_explained_in_the_reference(module: str) -> None:
    public = importlib.import_module(module)
    ours = [getattr(public, name) for name in public.__all__ if callable(getattr(public, name))]
    explained = [each for each in ours if str(getattr(each, "__module__", "")).startswith("fastlane")]

    assert [each.__name__ for each in explained if not inspect.getdoc(each)] == []
    assert explained != []


def raising(module: str) -> Iterator[tuple[str, str, str]]:
    """Name, source and docstring of the public callables that are ours; a constructor's docstring with its class's."""
    public = importlib.import_module(module)
    for name in public.__all__:
        kind = getattr(public, name)
        # openai's constructors and copies are openai's to explain.
        if issubclass_of_openai(kind):
            continue
        members = {"": kind} if inspect.isfunction(kind) else vars(kind) if isinstance(kind, type) else {}
        for member, function in members.items():
            function = getattr(function, "__func__", None) or getattr(function, "fget", None) or function
            constructs = member in ("__init__", "__post_init__")
            if not inspect.isfunction(function) or (member.startswith("_") and not constructs):
                continue
            with suppress(OSError):  # what a dataclass writes has no source
                if function.__module__.startswith("fastlane"):
                    explained = f"{function.__doc__} {kind.__doc__ if constructs else ''}"
                    yield f"{name}.{member}".rstrip("."), inspect.getsource(function), explained


def issubclass_of_openai(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, (openai.OpenAI, openai.AsyncOpenAI))


@pytest.mark.parametrize("module", sorted(REFERENCE))
def test_documented_functions_list_their_errors(module: str) -> None:
    silent = [
        name
        for name, source, explained in raising(module)
        if re.search(r"\braise [A-Z]", source) and not re.search(r"[Rr]aise|Error", explained)
    ]

    assert silent == []

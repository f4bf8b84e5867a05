"""What the package's own source may not contain, and every variable of the environment that it reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fastlane"
PAGE = ROOT / "docs/security.md"

# Tools that an application never imports: they start processes of their own, and say so in their documentation.
TOOLS = ("bench", "emulator")

RUNS_DATA = frozenset((
    "eval", "exec", "compile", "__import__", "pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml",
    "runpy", "code",
))  # fmt: skip
"""By which data becomes code."""
STARTS = frozenset(("subprocess", "multiprocessing", "pty", "ctypes", "cffi", "webbrowser"))
"""By which a process is started, or code that is not Python's is loaded."""
OF_OS = frozenset(
    ("system", "popen", "execv", "execve", "execvp", "execl", "spawnv", "spawnl", "posix_spawn", "startfile")
)

ALLOWED = {
    # Decoders are compiled of the names of openai's fields: test_decoders.py.
    "decode/_build.py": {"exec", "compile"},
    # `fastlane trace view` opens the page that it has made, where it stands in a terminal.
    "traces/_command.py": {"webbrowser"},
}


def modules() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in TOOLS:
            yield path


def found_in(source: str) -> set[str]:
    """Names in a module's source by which data becomes code, or a process begins."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in OF_OS:
                found.add("subprocess")
            case ast.Call(func=ast.Attribute(attr="unpackb" | "Unpacker")):
                found.add("pickle")
    return found & (RUNS_DATA | STARTS)


def test_no_data_becomes_code_and_no_process_begins() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): found_in(path.read_text("utf-8")) for path in modules()}
    assert {name: what for name, what in found.items() if what} == ALLOWED


def statements() -> Iterator[tuple[str, ast.expr]]:
    """What is given to a database as a statement."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="execute" | "executemany" | "exec_driver_sql"), args=[first, *_]):
                    if isinstance(first, ast.JoinedStr | ast.BinOp) or (
                        isinstance(first, ast.Constant) and isinstance(first.value, str)
                    ):
                        yield path.relative_to(PACKAGE).as_posix(), first


def test_every_statement_text_is_a_constant() -> None:
    found = list(statements())
    assert [name for name, statement in found if not isinstance(statement, ast.Constant)] == []
    assert found


# Capitals with an underscore that are no variables of an environment.
OTHER_NAMES = re.compile(
    r"SQLITE_\w+|TCP_\w+|O_BINARY|RST_STREAM|WINDOW_UPDATE|SPAN_KIND_|STATUS_CODE_ERROR|OTEL_EXPORTER_OTLP_|OTEL_PYTHON_"
)
NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9*]+)+_?")


def named_in(source: str) -> set[str]:
    """Every text in a module's source that could be the name of a variable, and what is read from the environment."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(name)) if NAME.fullmatch(name):
                found.add(name)
            case ast.JoinedStr() if NAME.fullmatch(name := re.sub(r"\{.*?\}", "*", ast.unparse(node)[2:-1])):
                found.add(name)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="environment") | ast.Attribute(attr="environ"), attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.add(name)
    return {name for name in found if not OTHER_NAMES.fullmatch(name)}


def listed() -> dict[str, str]:
    """The variables in the table of the page, each with who reads it."""
    section = PAGE.read_text("utf-8").partition("## Variables of the environment")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name: row[2].strip() for row in rows for name in re.findall(r"`([A-Za-z0-9_*]+)`", row[1])}


def test_every_variable_that_is_read_is_listed_and_no_other() -> None:
    read = set().union(*(named_in(path.read_text("utf-8")) for path in modules()))
    ours = {name for name, whose in listed().items() if whose == "fastlane"}
    assert read == ours
    assert len(read) > 15

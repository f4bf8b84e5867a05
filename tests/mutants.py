"""`make mutants`: break the core at random positions, one at a time, and see which breaks the tests find.

    python -m tests.mutants                       100 breaks (an hour on two cores)
    python -m tests.mutants --count 20 --seed 7   another draw
    python -m tests.mutants --json                for a program

A break is one of cosmic-ray's: another comparison or operator, `not`, another number, `break` for `continue`. First
all cases of the core's tests run once, which tells the lines that each of them executes. Then, for each break, the
tests that execute its line run, and some that execute others of its file, those that execute the fewest lines first,
until one fails: then it is found. All run on copies of the repository. One that is not found may also be one that no
user would see, such as another size of a cache.

Exit codes: 0 where at least 85 % were found, 1 where fewer were, 2 where the tests fail without a break.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
CORE = ("client", "compat", "decode", "engine", "protocol", "records", "transport")
FOLDERS = (
    "attempts", "batch", "contract", "deployment", "engine", "faults", "fuzz", "knowledge", "plays", "protocol",
    "providers", "races", "reports", "schemas", "security", "telemetry", "traces", "transport",
)  # fmt: skip
LEAST_FOUND = 0.85
# A decorator of the core either makes a property, which each test finds, or a cache, which none should.
LEFT_OUT = ("RemoveDecorator", "VariableReplacer", "VariableInserter")
LIMIT_S = 1_200
MOST_OTHERS = 300
LEFT_BEHIND = (".venv*", ".git", "site", "dist", "bench-results", "__pycache__", ".*_cache", ".hypothesis")


@dataclass(frozen=True)
class Break:
    """One change of one line."""

    path: str
    line: int
    operator: str
    occurrence: int


def unevaluated(source: str) -> set[tuple[int, int]]:
    """Return the lines and columns of annotations, of decorators and of what only type checkers import or read.

    No call evaluates them. A decorator's arguments say that a class has slots or is frozen, or the size of a cache,
    those of a class which keys of a `TypedDict` may be missing.
    """
    found: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source)):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        parts += getattr(node, "decorator_list", ())
        if isinstance(node, ast.ClassDef):
            parts += [keyword.value for keyword in node.keywords]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts.append(node.test)
        for part in parts:
            if isinstance(part, ast.expr):
                found.update(
                    (one.lineno, column)
                    for one in ast.walk(part)
                    if isinstance(one, ast.expr)
                    for column in range(one.col_offset, one.end_col_offset or 0)
                )
    return found


def possible(path: Path) -> dict[tuple[int, int], list[Break]]:
    """Return the breaks that are possible in a file, by the position that they change."""
    source = path.read_text(encoding="utf-8")
    tree, left_out, lines = get_ast(source), unevaluated(source), source.splitlines()
    possible_breaks: dict[tuple[int, int], list[Break]] = defaultdict(list)
    for name in operator_names():
        if name.endswith(LEFT_OUT):
            continue
        operator: Any = get_operator(name)
        positions = [at for node in ast_nodes(tree) for at in operator().mutation_positions(node)]
        for occurrence, (start, _) in enumerate(positions):
            # (The `*` of a signature is an operator for cosmic-ray, and what a `/` says there, mypy checks.)
            if start not in left_out and not lines[start[0] - 1].startswith("*,", start[1]):
                possible_breaks[start].append(Break(str(path.relative_to(ROOT)), start[0], name, occurrence))
    return possible_breaks


def broken(one: Break) -> str:
    """Return the source of a file with a break."""
    whole = (ROOT / one.path).read_text(encoding="utf-8")
    changed: str = mutate_code(whole, get_operator(one.operator)(), one.occurrence)
    return changed


def is_python(source: str) -> bool:
    """Return whether a source can be compiled: the `*` of a signature is an operator for cosmic-ray."""
    try:
        compile(source, "", "exec")
    except SyntaxError:
        return False
    return True


def drawn(count: int, seed: int) -> list[Break]:
    """Draw positions in the core, and one of the breaks that each allows."""
    draw = random.Random(seed)
    paths = [path for name in CORE for path in sorted((ROOT / "fastlane" / name).rglob("*.py"))]
    possible_breaks = [breaks for path in paths for _, breaks in sorted(possible(path).items())]
    found = (draw.choice(breaks) for breaks in draw.sample(possible_breaks, len(possible_breaks)))
    return list(islice((one for one in found if is_python(broken(one))), count))


def pytest(folder: Path, *arguments: str, limit_s: float = LIMIT_S, output: Any = subprocess.DEVNULL) -> int:
    """Run tests, and return pytest's exit code; 1 where they hang."""
    # What tests start in processes of their own imports this copy too, and not the one that is installed.
    command = ("env", f"PYTHONPATH={folder}", sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments)
    try:
        return subprocess.run(
            command, cwd=folder, stdout=output, stderr=output, timeout=limit_s, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def executed(folder: Path) -> CoverageData:
    """Run all tests of the core on a copy, and return which of its lines each of them executes."""
    print("running the tests of the core once", file=sys.stderr, flush=True)
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py"))
    tests = [*(f"tests/{name}" for name in FOLDERS), *files]
    os.environ["COVERAGE_FILE"] = data_file = str(folder.with_suffix(".coverage"))
    cover = ("-n", "auto", "--cov=fastlane", "--cov-context=test", "--cov-report=")
    code = pytest(folder, *cover, *tests, limit_s=4 * LIMIT_S, output=sys.stderr)
    if code:
        print(f"the tests fail without a break (pytest exits with {code}): mend them first", file=sys.stderr)
        sys.exit(2)
    data = CoverageData(data_file)
    data.read()
    return data


def statement_at(source: str, line: int) -> range:
    """Return the lines of the statement that a line is part of; of one with a body, those above that.

    Of a statement of several lines, only those that have code of their own are known to be executed.
    """
    lines = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer ones come first
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body = getattr(node, "body", ())
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or line
            lines = range(node.lineno, last + 1) if node.lineno <= line <= last else lines
    return lines


def tests_of(data: CoverageData, folder: Path, one: Break, lines: Counter[str]) -> list[str]:
    """Return the tests that execute a statement, and then some that execute others of its file.

    What is done once in a process, the first test alone executes, and others find. Of a line that runs with an import
    or in a forked process, all of these are returned, or those of the files that import it. Those that execute the
    fewest lines come first.
    """

    def in_order(contexts: Iterable[str]) -> list[str]:
        tests = {context.rpartition("|")[0] for context in contexts} - {""}
        return sorted(tests, key=lambda test: (lines[test], test))

    by_line = data.contexts_by_lineno(str(folder / one.path))
    lines_of_it = statement_at((ROOT / one.path).read_text(encoding="utf-8"), one.line)
    of_line = {context for line in lines_of_it for context in by_line.get(line, ())}
    of_file = {context for every in by_line.values() for context in every}
    if of_file == {""}:  # a file of constants
        name = f"{Path(one.path).stem} import "
        users = [path for path in data.measured_files() if name in Path(path).read_text(encoding="utf-8")]
        by_file = [data.contexts_by_lineno(path).values() for path in users]
        of_file = {context for file in by_file for every in file for context in every}
    others = in_order(of_file - of_line)
    return in_order(of_line) + (others if of_line <= {""} else others[:MOST_OTHERS])


def is_found(folder: Path, one: Break, tests: Sequence[str]) -> bool:
    """Break a copy of the repository, run the tests, and mend it again."""
    path = folder / one.path
    whole = path.read_text(encoding="utf-8")
    path.write_text(broken(one), encoding="utf-8")
    try:
        return any(pytest(folder, "-x", *tests[at : at + 100]) for at in range(0, len(tests), 100))
    finally:
        path.write_text(whole, encoding="utf-8")


def change(one: Break) -> str:
    """Return the lines that a break takes away and adds."""
    whole = (ROOT / one.path).read_text(encoding="utf-8")
    lines = list(unified_diff(whole.splitlines(), broken(one).splitlines(), lineterm="", n=0))[3:]
    return "\n".join(f"    {line}" for line in lines)


def workers(scratch: Path) -> SimpleQueue[Path]:
    """Return copies of the repository to break: one more than cores, since tests also wait."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range((os.cpu_count() or 1) + 1):
        copies.put(shutil.copytree(ROOT, scratch / str(number), ignore=shutil.ignore_patterns(*LEFT_BEHIND)))
    return copies


def main() -> int:
    """Break, test and report."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="how many breaks")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    breaks = drawn(options.count, options.seed)
    missed: list[Break] = []
    with tempfile.TemporaryDirectory(prefix="fastlane-mutants-") as scratch:
        copies, unbroken = workers(Path(scratch)), Path(scratch, "0")
        data = executed(unbroken)
        by_file = [data.contexts_by_lineno(path).values() for path in data.measured_files()]
        lines = Counter(name.rpartition("|")[0] for file in by_file for names in file for name in names)

        def judge(one: Break) -> bool:
            folder = copies.get()
            try:
                return is_found(folder, one, tests_of(data, unbroken, one, lines))
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(copies.qsize()) as pool:
            running = {pool.submit(judge, one): one for one in breaks}
            for number, done in enumerate(as_completed(running), 1):
                one, found = running[done], done.result()
                if not found:
                    missed.append(one)
                where = f"{one.path}:{one.line} {one.operator}"
                print(f"{number}/{len(breaks)} {'found' if found else 'MISSED'} {where}", file=sys.stderr, flush=True)
    count = len(breaks) - len(missed)
    missed.sort(key=lambda one: (one.path, one.line))
    if options.json:
        changes = [{**asdict(one), "change": change(one)} for one in missed]
        print(json.dumps({"breaks": len(breaks), "found": count, "missed": changes}, indent=2))
    else:
        for one in missed:
            print(f"{one.path}:{one.line}\n{change(one)}")
        print(f"{count} of {len(breaks)} breaks were found")
    return 0 if count >= LEAST_FOUND * len(breaks) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run frameworks that stand on openai's client, really installed, through fastlane's.

    python -m scripts.frameworks                       all of them, in their environments (a minute)
    python -m scripts.frameworks --only instructor     one of them; may be given again
    python -m scripts.frameworks --json                with one line of JSON at the end
    python -m scripts.frameworks --lock                pin anew what each of them resolves to today
    python -m scripts.frameworks -- -x -k tools        what follows goes to pytest

Each framework is tested with the openai that its own pins lead to. Those that lead to the same one share an environment
below .venv-frameworks: they do so in an application that has several of them, and what they share is set up once.

Exit codes: 0 where all tests passed, 1 where some did not or nothing could be installed, 2 for a framework that is not
known.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from scripts.distribution import UnavailableError
from scripts.environments import ROOT, environment, uv_program

_TESTS = ROOT / "tests/frameworks"
_HOME = ROOT / ".venv-frameworks"
_INSTALL_S = 900.0
_RUN_S = 900.0
_AT_ONCE = 2
_OURS = ("--editable", f"{ROOT}[bench]", "pytest", "pytest-asyncio", "pytest-timeout")
"""What every environment has beside its frameworks: fastlane with the emulated provider, and what runs the tests."""


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: its distribution on the package index, and where it is tested."""

    name: str
    distribution: str
    packages: tuple[str, ...]

    @property
    def tests(self) -> Path:
        """Its module of tests."""
        return _TESTS / f"test_{self.name.replace('-', '_')}.py"


@dataclass(frozen=True, slots=True)
class Home:
    """Frameworks whose pins lead to the same openai, in one environment."""

    name: str
    frameworks: tuple[Framework, ...]

    @property
    def pins(self) -> Path:
        """All versions in it."""
        return _TESTS / f"constraints-{self.name}.txt"

    @property
    def packages(self) -> tuple[str, ...]:
        """What is asked for; the pins say in which version."""
        return tuple(package for framework in self.frameworks for package in framework.packages)


HOMES = (
    # Nothing holds these back.
    Home(
        "newest",
        (
            Framework("langchain-openai", "langchain-openai", ("langchain-openai",)),
            Framework("openai-agents", "openai-agents", ("openai-agents",)),
            Framework("pydantic-ai", "pydantic-ai-slim", ("pydantic-ai-slim[openai]",)),
            Framework("haystack", "haystack-ai", ("haystack-ai",)),
            Framework("autogen", "autogen-ext", ("autogen-ext[openai]", "autogen-agentchat")),
        ),
    ),
    # instructor takes jiter below 0.15, which openai 3.4 and later do not.
    Home("jiter", (Framework("instructor", "instructor", ("instructor",)),)),
    # LlamaIndex takes openai below 3, and LiteLLM's latest release ends there. For calls with tools it imports mcp, of
    # which its own requirements say nothing.
    Home(
        "openai2",
        (
            Framework(
                "llama-index",
                "llama-index-llms-openai",
                ("llama-index-llms-openai", "llama-index-llms-openai-like"),
            ),
            Framework("litellm", "litellm", ("litellm", "mcp")),
        ),
    ),
)


@dataclass(slots=True)
class Standing:
    """How one framework stands."""

    framework: str
    version: str = ""
    openai: str = ""
    http: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    trouble: str = ""
    failures: list[str] = field(default_factory=list)


def lock(homes: Sequence[Home]) -> None:
    """Write what each environment resolves to today into its pins. Raises UnavailableError."""
    uv = uv_program()
    if uv is None:
        raise UnavailableError("pinning anew needs uv: pip install uv")
    for home in homes:
        asked = "\n".join((f"{ROOT}[bench]", *_OURS[2:], *home.packages))
        command = [uv, "pip", "compile", "--no-config", "--quiet", "--upgrade", "--no-header", "--no-annotate"]
        command += ["--no-emit-package", "fastlane-llm", "--output-file", str(home.pins), "-"]
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise UnavailableError(f"{home.name} does not resolve:\n{done.stderr.strip()}")


def test(home: Home, frameworks: Sequence[Framework], more: Sequence[str]) -> tuple[list[Standing], str]:
    """Install what is missing, run the tests, and say how each framework stands, and what pytest has printed."""
    started = time.monotonic()
    standings = {framework.name: Standing(framework.name) for framework in frameworks}
    try:
        place = environment(
            _HOME / home.name,
            (*_OURS, *home.packages),
            pins=home.pins,
            limit_s=_INSTALL_S,
            decisive=(ROOT / "pyproject.toml").read_bytes(),
            quick=True,
        )
    except UnavailableError as error:
        for standing in standings.values():
            standing.trouble = "not installed"
        return list(standings.values()), str(error)
    _name_versions(place, frameworks, standings)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        said = _run(place, frameworks, report, more)
        if report.exists():
            _read(report, standings)
    for standing in standings.values():
        if not standing.passed + standing.failed and not more:
            standing.trouble = "no test ran"
    said += f"({home.name}: {time.monotonic() - started:.0f} s, set-up included)"
    return list(standings.values()), said


def _name_versions(place: Path, frameworks: Sequence[Framework], standings: dict[str, Standing]) -> None:
    packages = [str(found) for found in place.glob("lib/python*/site-packages")]
    versions = {each.metadata["Name"].lower(): each.version for each in distributions(path=packages)}
    # openai 3 stands on httpx2, and openai 2 on httpx.
    library = "httpx" if versions["openai"].startswith("2.") else "httpx2"
    for framework in frameworks:
        standing = standings[framework.name]
        standing.version, standing.openai = versions[framework.distribution], versions["openai"]
        standing.http = f"{library} {versions[library]}"


def _run(place: Path, frameworks: Sequence[Framework], report: Path, more: Sequence[str]) -> str:
    tests = [str(framework.tests) for framework in frameworks]
    tests.append(str(_TESTS / "test_page.py"))
    command = [str(place / "bin/python"), "-m", "pytest", "-c", str(_TESTS / "pytest.toml"), "-q", "--disable-warnings"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}", *tests, *more]
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    chosen = ",".join(framework.name for framework in frameworks)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            cwd=ROOT,
            env={**inherited, "FRAMEWORKS": chosen},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{place.name} is not done within {_RUN_S:.0f} s\n"
    return done.stdout + ("" if done.returncode in (0, 1, 5) else done.stderr)


def _read(report: Path, standings: dict[str, Standing]) -> None:
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module, name = str(case.get("classname")).rpartition(".")[2], str(case.get("name"))
        of = module.removeprefix("test_").replace("_", "-")
        if of == "page":
            of = name.partition("[")[2].removesuffix("]").partition(" ")[0]
        standing = standings.get(of) or next(iter(standings.values()))
        standing.seconds += float(case.get("time") or 0)
        if case.find("failure") is not None or case.find("error") is not None:
            standing.failed += 1
            standing.failures.append(f"{module}::{name}")
        elif case.find("skipped") is not None:
            standing.skipped += 1
        else:
            standing.passed += 1


def table(standings: Sequence[Standing]) -> Table:
    """How the frameworks stand."""
    shown = Table("framework", "version", "openai", "HTTP library", "passed", "failed", "skipped", "seconds")
    for each in standings:
        counted = (str(each.passed), each.trouble or str(each.failed), str(each.skipped), f"{each.seconds:.1f}")
        shown.add_row(each.framework, each.version, each.openai, each.http, *counted)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    usage, _, described = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [framework.name for home in HOMES for framework in home.frameworks]
    parser.add_argument("--only", action="append", choices=known, metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--lock", action="store_true", help="pin anew what each environment resolves to today")
    parser.add_argument("--jobs", type=int, default=_AT_ONCE, help="environments at the same time (2)")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    given = parser.parse_args(arguments)
    only = set(given.only or known)
    chosen = [(home, [each for each in home.frameworks if each.name in only]) for home in HOMES]
    chosen = [(home, frameworks) for home, frameworks in chosen if frameworks]
    # Progress is for eyes, and the line of JSON for programs.
    console = Console(stderr=given.json)
    if given.lock:
        try:
            lock([home for home, _ in chosen])
        except UnavailableError as error:
            console.print(str(error), markup=False)
            return 1
    standings: list[Standing] = []
    with ThreadPoolExecutor(max(1, given.jobs)) as pool, console.status(f"testing {', '.join(sorted(only))}"):
        running = [pool.submit(test, home, frameworks, given.pytest) for home, frameworks in chosen]
        for each in running:
            stood, said = each.result()
            standings += stood
            console.print(said, markup=False, highlight=False)
    console.print(table(standings))
    if given.json:
        print(json.dumps([asdict(each) for each in standings]))
    return 1 if any(each.failed or each.trouble for each in standings) else 0


if __name__ == "__main__":
    sys.exit(main())

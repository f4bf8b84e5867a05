"""Run frameworks that stand on openai's client, really installed, through fastlane's.

    python -m scripts.frameworks                       all of them, in their environments (a minute)
    python -m scripts.frameworks --only instructor     one of them; may be given again
    python -m scripts.frameworks --lock                pin anew what each of them resolves to today
    python -m scripts.frameworks -- -x -k tools        what follows goes to pytest

Each framework is tested with the openai that its own pins lead to. Those that lead to the same one share an environment
below .venv-frameworks, as they do in an application that has several of them.

Exit codes: 0 where all tests passed, 1 where some did not or nothing could be installed, 2 for an unknown framework.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from scripts.environments import ROOT, environment, print_passed, run_tests, uv_program
from scripts.servers import UnavailableError

_TESTS = ROOT / "tests/frameworks"
_OURS = ("--editable", f"{ROOT}[bench]", "pytest", "pytest-asyncio", "pytest-timeout")
"""What every environment has beside its frameworks: fastlane with the embedded provider, and what runs the tests."""


class Framework(NamedTuple):
    """A framework: its name and distribution on the package index, and the packages that its tests need."""

    name: str
    distribution: str
    packages: tuple[str, ...]

    @property
    def tests(self) -> Path:
        """Its module of tests."""
        return _TESTS / f"test_{self.name.replace('-', '_')}.py"


class Home(NamedTuple):
    """Frameworks whose pins lead to the same openai, in one environment."""

    name: str
    frameworks: tuple[Framework, ...]

    @property
    def pins(self) -> Path:
        """The file with the versions of everything in it."""
        return _TESTS / f"constraints-{self.name}.txt"

    @property
    def packages(self) -> list[str]:
        """The requirements without versions."""
        return [package for framework in self.frameworks for package in framework.packages]


_NEWEST = (
    Framework("langchain-openai", "langchain-openai", ("langchain-openai",)),
    Framework("openai-agents", "openai-agents", ("openai-agents",)),
    Framework("pydantic-ai", "pydantic-ai-slim", ("pydantic-ai-slim[openai,openai-realtime]",)),
    Framework("haystack", "haystack-ai", ("haystack-ai",)),
    Framework("autogen", "autogen-ext", ("autogen-ext[openai]", "autogen-agentchat")),
)
# instructor takes jiter below 0.15, which openai 3.4 and later do not.
_JITER = (Framework("instructor", "instructor", ("instructor",)),)
# LlamaIndex takes openai below 3, and LiteLLM's latest release ends there. For calls with tools LiteLLM imports mcp,
# which its own requirements do not name.
_OPENAI2 = (
    Framework("llama-index", "llama-index-llms-openai", ("llama-index-llms-openai", "llama-index-llms-openai-like")),
    Framework("litellm", "litellm", ("litellm", "mcp")),
)
HOMES = (Home("newest", _NEWEST), Home("jiter", _JITER), Home("openai2", _OPENAI2))


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


def test(home: Home, frameworks: Sequence[Framework], more: Sequence[str]) -> bool:
    """Install what is missing, run the tests, and return whether they passed."""
    try:
        folder = environment(ROOT / ".venv-frameworks" / home.name, (*_OURS, *home.packages), pins=home.pins)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return False
    packages = [str(found) for found in folder.glob("lib/python*/site-packages")]
    versions = {each.metadata["Name"].lower(): each.version for each in distributions(path=packages)}
    named = [f"{each.name} {versions[each.distribution]}" for each in frameworks]
    print(*named, f"with openai {versions['openai']}", sep=", ", flush=True)
    tests = [str(framework.tests) for framework in frameworks]
    tests += [str(_TESTS / "test_page.py"), str(_TESTS / "test_auto.py")]
    arguments = ["-c", str(_TESTS / "pytest.toml"), "--disable-warnings", *tests, *more]
    return run_tests(folder, arguments, {"FRAMEWORKS": ",".join(framework.name for framework in frameworks)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.frameworks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [framework.name for home in HOMES for framework in home.frameworks]
    parser.add_argument("--only", action="append", choices=known, metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("--lock", action="store_true", help="pin anew what each environment resolves to today")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    given = parser.parse_args(arguments)
    chosen = {home: [each for each in home.frameworks if each.name in (given.only or known)] for home in HOMES}
    chosen = {home: frameworks for home, frameworks in chosen.items() if frameworks}
    if given.lock:
        try:
            lock(list(chosen))
        except UnavailableError as error:
            print(error, file=sys.stderr)
            return 1
    return print_passed({home.name: test(home, frameworks, given.pytest) for home, frameworks in chosen.items()})


if __name__ == "__main__":
    sys.exit(main())

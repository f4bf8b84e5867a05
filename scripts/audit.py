"""Check the package from outside: dependencies, the wheel, an empty environment, and the README's first example in it.

    python -m scripts.audit                         all of it
    python -m scripts.audit --only wheel import     some of it

advisories  pip-audit, over the versions of constraints.txt
wheel       wheel and source distribution, built several times and compared byte for byte, and what the wheel holds
import      the wheel without extras in an empty environment: what it brings; what `import fastlane` loads and opens
example     the README's first example there, against the emulator; once more with the extra `bench`, and its emulator

Exit codes: 0 where nothing is broken (what is skipped says why), 1 where something is, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import wheel
from scripts.environments import ROOT
from scripts.wheel import Finding, judged, report

_PROBE = Path(__file__).with_name("audit_probe.py")

# Advisories

_WHAT = "no advisory is known against the versions in constraints.txt"
# Releases of 2016 with advisories against one: a service that knows of none cannot be believed about the others.
_KNOWN_TO_BE_BAD = "jinja2==2.8"


def advisories() -> list[Finding]:
    """Ask for advisories, of the first service that answers; skipped, with the reason, where none does."""
    pins = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]
    # The package index's own data, and the database that those come from.
    for service in ("pypi", "osv"):
        if _vulnerabilities(_asked(service, [_KNOWN_TO_BE_BAD])) and (found := _asked(service, pins)):
            unknown = ", ".join(str(one.get("name")) for one in found if "skip_reason" in one)
            right = f"{len(found)} packages, asked of {service}" + (
                f"; nothing is known of {unknown}" if unknown else ""
            )
            return [judged("advisories", _WHAT, _vulnerabilities(found), right)]
    reason = f"no service for advisories is reachable, not even for {_KNOWN_TO_BE_BAD}, which has some"
    return [Finding("advisories", _WHAT, "skipped", reason)]


def _asked(service: str, pins: Sequence[str]) -> list[dict[str, Any]]:
    """Return what pip-audit knows of these versions; nothing where it cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(pins) + "\n", encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--requirement", str(file)),
            *("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
            return list(json.loads(done.stdout)["dependencies"])
        except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
            return []


def _vulnerabilities(found: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{one['name']} {one['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'no version'}"
        for one in found
        for bug in one.get("vulns", ())
    ]


# An empty environment

ALLOWED = frozenset((
    "annotated_types", "anyio", "fastlane", "httpx2", "idna", "openai", "orjson", "pydantic", "pydantic_core",
    "sniffio", "typing_extensions", "typing_inspection",
))  # fmt: skip
"""Packages that `import fastlane` may load. The others that it needs wait for the first call that needs them."""

KEPT_OUT = (
    "fastlane.bench", "fastlane.emulator", "fastlane.batch", "fastlane.doctor", "opentelemetry", "openai.resources",
)  # fmt: skip
"""Modules that an import must not load; all of these have a package that is allowed, or come with it."""

# What an interpreter or a library of the system's reads on any start: none of it is a user's.
_OF_THE_SYSTEM = re.compile(
    r"/dev/(u?random|null)$|/proc/|/sys/|/usr/(lib|local/lib|share/zoneinfo)|/lib|/etc/"
    r"(localtime|nsswitch\.conf|resolv\.conf|hosts|host\.conf|gai\.conf|mime\.types|services|protocols|ssl/|pki/|ld\.so)"
)

# openai says in its headers on which system it runs, and finds out by Python's `platform`: once in a process.
_OF_OPENAI = ("/etc/os-release", "/etc/lsb-release", "/dev/null", "subprocess.Popen ('uname',)")


class EmptyError(RuntimeError):
    """An environment cannot be made or used: the message says why."""


class Environment:
    """A virtual environment with a wheel in it."""

    def __init__(self, home: Path) -> None:
        venv.create(home, with_pip=False)
        self.python = str(home / "bin" / "python")

    def install(self, requirement: str) -> None:
        """Install it with the versions of constraints.txt. Raises EmptyError."""
        pins = str(ROOT / "constraints.txt")
        done = self.pip("install", "-qq", "--no-compile", "--constraint", pins, requirement)
        if done.returncode:
            raise EmptyError("pip: " + "\n".join(done.stderr.strip().splitlines()[-3:]))

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pip of this Python for that one."""
        options = ("--disable-pip-version-check", "--python", self.python)
        return _run([sys.executable, "-m", "pip", *options, *arguments])

    def probe(self, what: str, name: str, variables: Mapping[str, str], cwd: Path) -> dict[str, Any]:
        """Return what an import or a file of code did. Raises EmptyError if it failed."""
        done = _run([self.python, "-I", "-B", str(_PROBE), what, name], variables, cwd)
        if done.returncode:
            raise EmptyError(f"{what} {Path(name).name} failed: " + "\n".join(done.stderr.strip().splitlines()[-3:]))
        *printed, last = done.stdout.splitlines()
        return {**json.loads(last), "printed": printed}


def _run(
    command: Sequence[str], variables: Mapping[str, str] = {}, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300.0, check=False, cwd=cwd, env=clean(variables)
    )


def clean(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process without what would make it another Python's, or another provider's."""
    names = ("PYTHON", "VIRTUAL_ENV", "OPENAI_", "AZURE_OPENAI_", "FASTLANE_", "OTEL_", "SSL_CERT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {**{name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}, **variables}


def imported_findings(environment: Environment, cwd: Path) -> Iterator[Finding]:
    """What a minimal installation brings, and what `import fastlane` does in it."""
    part = "import"
    there = {one["name"] for one in json.loads(environment.pip("list", "--format", "json").stdout)}
    check = environment.pip("check")
    problems = check.stdout.strip().splitlines() if check.returncode else []
    yield judged(part, "what its metadata names is enough, and fits together", problems, f"{len(there)} packages")
    of_extras = {
        "numpy", "rich", "typer", "tiktoken", "trustme", "redis", "psycopg", "ray", "httpx", "altair", "websockets",
    }  # fmt: skip
    yield judged(part, "an installation without extras brings none of theirs", sorted(of_extras & there))
    did = environment.probe("import", "fastlane", {}, cwd)
    loaded = {name.partition(".")[0] for name in did["modules"]} - sys.stdlib_module_names
    others = sorted(name for name in loaded - ALLOWED if not name.startswith("_sysconfigdata"))
    heavy = sorted({one for one in KEPT_OUT for name in did["modules"] if f"{name}.".startswith(f"{one}.")})
    count = f"{len(did['modules'])} modules of {len(loaded & ALLOWED)} packages"
    yield judged(part, "`import fastlane` loads no more packages than it is known to", [*others, *heavy], count)
    yield judged(part, "it opens no file but those of Python and of packages", outside(did), f"{len(did['read'])} read")
    yield judged(part, "it writes nothing", did["written"])
    yield judged(part, "it opens no socket and asks for no address", did["network"])
    yield judged(part, "it starts no process", did["processes"])
    yield judged(part, "it starts no thread", did["threads"] + did["running"])
    yield judged(
        part, "it loads no data as code", [one for one in did["data_as_code"] if "types.py:coroutine" not in one]
    )


def outside(did: Mapping[str, Any]) -> list[str]:
    """Return the files that were read and are neither Python's, nor a package's, nor the system's own."""
    prefixes = tuple(f"{one}{os.sep}" for one in did["prefixes"])
    return [
        one
        for one in did["read"]
        if not one.startswith(prefixes) and not _OF_THE_SYSTEM.match(one) and Path(one) != _PROBE
    ]


def example() -> str:
    """Return the first example of the README that makes a call."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(next(block for block in blocks if "from fastlane import" in block))


@contextlib.contextmanager
def emulator(command: Sequence[str]) -> Iterator[dict[str, str]]:
    """Run `fastlane emulator` as at a terminal, and yield the variables that it says to export."""
    run = [*command, "emulator", "--preset", "instant"]
    environment = clean({"PYTHONUNBUFFERED": "1"})
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            variables: dict[str, str] = {}
            assert process.stdout is not None
            for line in itertools.takewhile(lambda line: not line.startswith("curl "), process.stdout):
                if line.startswith("export "):
                    variables |= dict(pair.split("=", 1) for pair in shlex.split(line.removeprefix("export ")))
            if "OPENAI_BASE_URL" not in variables:
                raise EmptyError("`fastlane emulator` named no OPENAI_BASE_URL to export")
            yield variables
        finally:
            process.terminate()


def called(environment: Environment, title: str, command: Sequence[str], cwd: Path) -> Iterator[Finding]:
    """What the README's first example does against the emulator."""
    part = "example"
    file = cwd / "example.py"
    file.write_text(example(), encoding="utf-8")
    with emulator(command) as variables:
        did = environment.probe("run", str(file), variables, cwd)
    port = re.search(r":(\d+)", variables["OPENAI_BASE_URL"])
    assert port is not None
    answer = len(did["printed"]) == 2 and bool(did["printed"][0])
    yield judged(
        part,
        f"{title}, the README's first example prints its answer and its times",
        [] if answer else [f"it printed {did['printed']!r:.100}"],
        did["printed"][-1] if did["printed"] else "",
    )
    strangers = [one for one in did["network"] if "127.0.0.1" not in one or port[1] not in one]
    yield judged(part, "it reaches only its provider", strangers, "; ".join(sorted(set(did["network"]))))
    expected = {*_OF_OPENAI, variables.get("SSL_CERT_FILE"), str(file)}
    read = [one for one in outside(did) if one not in expected]
    yield judged(part, "it opens no file but those of Python, of packages, and its certificates", read)
    changed = [one for one in (*did["written"], *did["processes"]) if one not in expected]
    yield judged(part, "it writes nothing and starts no process, but for the `uname` of openai's headers", changed)


# The command line

PARTS = ("advisories", "wheel", "import", "example")


def _found(only: Sequence[str], place: Path) -> Iterator[Finding]:
    """Check the parts, which build on one another: the wheel is installed, and what is installed makes the call."""
    if "advisories" in only:
        yield from advisories()
    if set(only) <= {"advisories"}:
        return
    built, _, findings = wheel.build(place / "dist")
    yield from findings
    # A folder in which Python finds nothing of the repository.
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    environment = Environment(place / "environment")
    environment.install(str(built))
    if "import" in only:
        yield from imported_findings(environment, elsewhere)
    if "example" in only:
        # Its provider runs in this environment, since it is in an extra.
        yield from called(environment, "without extras", (sys.executable, "-m", "fastlane"), elsewhere)
        environment.install(f"{built}[bench]")
        command = (str(Path(environment.python).with_name("fastlane")),)
        yield from called(environment, "with the extra `bench` and its emulator", command, elsewhere)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    asked = parser.parse_args(arguments)
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="fastlane-audit-") as temporary:
        try:
            found += _found(asked.only, Path(temporary))
        except (wheel.BuildError, EmptyError) as error:
            found.append(Finding("audit", "every part can be checked", "broken", str(error)))
    return report(found)


if __name__ == "__main__":
    sys.exit(main())

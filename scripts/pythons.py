"""Run the tests with every Python that fastlane supports and that is installed.

    python -m scripts.pythons                       all tests with each (about 15 minutes for one)
    python -m scripts.pythons --quick               the contract, the transport and the client's core (about a minute)
    python -m scripts.pythons --others --quick      without the Python that runs this
    python -m scripts.pythons --python 3.13         one of them; may be given again
    python -m scripts.pythons -- tests/plays -x     what follows goes to pytest

Looked for on the PATH, in /opt, and among those of pyenv and uv. Each gets a virtual environment of its own,
.venv-python-3.x, with fastlane and what the tests need.

Exit codes: 0 where all tests passed, 1 where some did not or could not be installed, 2 for a Python that is missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.environments import ROOT, environment, print_passed, run_tests
from scripts.servers import UnavailableError

VERSIONS = ("3.11", "3.12", "3.13", "3.14")

QUICK = (
    "tests/contract", "tests/test_call.py", "tests/test_decode.py", "tests/test_stream_laws.py",
    "tests/test_pipeline.py", "tests/test_send.py", "tests/test_stream.py", "tests/transport/test_fork.py",
    "tests/transport/test_loops.py", "tests/transport/test_records.py", "tests/transport/test_tls.py",
    "tests/transport/test_trust.py",
)  # fmt: skip
"""What breaks first with another Python: event loops, TLS, typing, garbage collection, compiled decoders."""


def interpreter(version: str) -> Path | None:
    """Return a Python of that version that runs, or None."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    folders += [*pyenv.glob(f"{version}*/bin"), *uv.glob(f"*-{version}*/bin"), *Path("/opt").glob("*/bin")]
    return next((path for folder in folders if _runs(path := folder / f"python{version}")), None)


def _runs(python: Path) -> bool:
    # A shim of pyenv exists for each version, and runs only where that version is chosen.
    command = [str(python), "-I", "-c", "import ssl, sqlite3, venv"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _test(version: str, python: Path, arguments: Sequence[str]) -> bool:
    """Install, run the tests, and say whether they passed."""
    print(f"Python {version} ({python})", flush=True)
    home, packages = ROOT / f".venv-python-{version}", ("--editable", f"{ROOT}[bench,charts,httpx,test]")
    try:
        environment(home, packages, pins=ROOT / "constraints.txt", python=str(python))
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return False
    return run_tests(home, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.pythons", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", metavar="VERSION", help="one that is to be used")
    parser.add_argument("--others", action="store_true", help="leave out the version that runs this")
    parser.add_argument("--newest", action="store_true", help="of all of them only the newest")
    parser.add_argument("--quick", action="store_true", help="only what breaks first with another Python")
    parser.add_argument("tests", nargs="*", help="arguments of pytest, behind --")
    asked = parser.parse_args(arguments)
    own = "{}.{}".format(*sys.version_info) if asked.others else None
    found = {version: interpreter(version) for version in asked.python or VERSIONS if version != own}
    missing = [version for version, python in found.items() if python is None]
    if asked.python and missing:
        print(f"Python {', '.join(missing)} is not installed, or does not run", file=sys.stderr)
        return 2
    pythons = [(version, python) for version, python in found.items() if python][-1 if asked.newest else 0 :]
    if not pythons:
        print(f"SKIPPED no Python of {', '.join(found)} is installed: no test ran")
        return 0
    tests = asked.tests or (QUICK if asked.quick else ())
    return print_passed({f"Python {version}": _test(version, python, tests) for version, python in pythons})


if __name__ == "__main__":
    sys.exit(main())

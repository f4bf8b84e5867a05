"""Install each backend that comes from the package index into a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zlib
from pathlib import Path

from scripts.backends._server import ROOT, BackendError

PACKAGES = {"phoenix": "arize-phoenix", "mlflow": "mlflow"}
_HOME = ROOT / ".venv-backends"
_INSTALL_S = 900.0


def constraints(name: str) -> Path:
    """The versions with which the backend was tried: all packages of its environment."""
    return Path(__file__).with_name(f"constraints-{name}.txt")


def program(name: str) -> str:
    """Path of the backend's program, which is installed first where it is missing. Raises BackendError."""
    home = _HOME / name
    found = home / "bin" / name
    pins = constraints(name)
    # Named by what decides the installation, so that an unchanged one is not repeated.
    made = home / f".installed-{zlib.crc32(pins.read_bytes() + sys.version.encode()):08x}"
    if made.exists() and found.exists():
        return str(found)
    if home.exists():
        shutil.rmtree(home)
    venv.create(home, with_pip=True)
    print(f"installing {PACKAGES[name]} into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--constraint", str(pins), PACKAGES[name]]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_S, env=_environment(), check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{PACKAGES[name]} is not installed within {_INSTALL_S:.0f} s") from error
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-5:])
        raise BackendError(f"{PACKAGES[name]} cannot be installed with {pins.relative_to(ROOT)}:\n{last}")
    made.touch()
    return str(found)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

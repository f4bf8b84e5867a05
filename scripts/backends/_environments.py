"""Install each backend that comes from the package index into a virtual environment of its own."""

from __future__ import annotations

from pathlib import Path

from scripts.environments import ROOT, environment

PACKAGES = {"phoenix": "arize-phoenix", "mlflow": "mlflow"}
_HOME = ROOT / ".venv-backends"
_INSTALL_S = 900.0


def constraints(name: str) -> Path:
    """The versions with which the backend was tried: all packages of its environment."""
    return Path(__file__).with_name(f"constraints-{name}.txt")


def program(name: str) -> str:
    """Path of the backend's program, which is installed first where it is missing. Raises UnavailableError."""
    home = environment(_HOME / name, (PACKAGES[name],), pins=constraints(name), limit_s=_INSTALL_S)
    return str(home / "bin" / name)

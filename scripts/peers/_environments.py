"""Each of the other load generators in a virtual environment of its own, because their pins differ from ours."""

from __future__ import annotations

from pathlib import Path

from scripts.environments import ROOT, InstallationError, environment

PACKAGES = {"guidellm": "guidellm==0.8.1", "aiperf": "aiperf==0.13.0"}
_HOME = ROOT / ".venv-peers"
_INSTALL_S = 1_800.0


class PeerError(RuntimeError):
    """A peer cannot be installed: the message says why."""


def constraints(name: str) -> Path:
    """The versions with which the peer was tried: all packages of its environment."""
    return Path(__file__).with_name(f"constraints-{name}.txt")


def install(name: str) -> str:
    """Path of the peer's interpreter; the peer is installed first where it is missing. Raises PeerError."""
    try:
        home = environment(_HOME / name, (PACKAGES[name],), pins=constraints(name), limit_s=_INSTALL_S)
    except InstallationError as error:
        raise PeerError(str(error)) from error
    return str(home / "bin" / "python")


def python(name: str) -> str | None:
    """Path of the peer's interpreter where the peer is installed; None where it is not."""
    home = _HOME / name
    return str(home / "bin" / "python") if any(home.glob(".installed-*")) else None

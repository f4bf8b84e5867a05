"""Find a Chromium for tests of pages, or install the distribution's where there is none.

    python -m scripts.browser       sees to it that one is installed, and says where

Where none is installed, the distribution's package is, by apt-get and only as root. Tests use `program`.
"""

from __future__ import annotations

import sys
from typing import Final

from scripts import distribution

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PACKAGE = "chromium"

ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
"""With which it runs without a display, as root, in a small container, and calls nobody at home."""


def program() -> str:
    """Return the browser's program, which is installed first where it is missing. Raises UnavailableError."""
    return distribution.program(_PROGRAMS, package=_PACKAGE)


def main() -> int:
    """Do what the command line says, and return the exit code."""
    try:
        print(program())
    except distribution.UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

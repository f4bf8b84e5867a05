"""The command `fastlane`: its parts are imported when they are called, so that a missing extra is named."""

from __future__ import annotations

import sys

from ._version import __version__
from .errors import MissingExtraError


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] in (["--version"], ["version"]):
        print(__version__)  # without typer, which a base install does not have
        return
    try:
        from ._commands import command_line

        app = command_line(*sys.argv[1:2])
    except MissingExtraError as error:
        sys.exit(f"fastlane: {error}")
    app()


if __name__ == "__main__":
    main()

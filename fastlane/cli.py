"""The command `fastlane`: its parts are imported when they are called, so that a missing extra is named."""

from __future__ import annotations

import sys

from ._version import __version__
from .errors import MissingExtraError

_HELP = """Usage: fastlane COMMAND [ARGS]...

A drop-in OpenAI client that makes calls faster from the client's side, and measures it.

  bench      compare clients, plays and loads        pip install 'fastlane-llm[bench,charts]'
  doctor     examine a provider                      pip install 'fastlane-llm[cli]'
  emulator   run an OpenAI-compatible provider       pip install 'fastlane-llm[cli]', with TLS [bench]
  trace      show the spans of a trace file          pip install 'fastlane-llm[cli]'
  live       follow the calls of running apps        pip install 'fastlane-llm[cli]'
  batch      run and inspect the offline queue       pip install 'fastlane-llm[cli,batch]'
"""


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)  # without typer, which a base install does not have
        return
    try:
        from ._commands import command_line

        app = command_line(*sys.argv[1:2])
    except MissingExtraError as error:
        if sys.argv[1:] in ([], ["--help"]):
            print(_HELP, end="")
            return
        sys.exit(f"fastlane: {error}")
    app()


if __name__ == "__main__":
    main()

"""`fastlane run`: outside the package, so that nothing imports openai before the program does."""

from __future__ import annotations

import os
import sys

# typing and pathlib take milliseconds of each start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_USAGE = "usage: fastlane run [--report] TARGET [ARGUMENT]..."
_TARGETS = "a Python file, a directory with a __main__.py, -m MODULE, -c CODE, or a command such as gunicorn"
_HELP = f"""{_USAGE}

Run a program, unchanged. Every client that it or its child processes make of openai's classes is fastlane's.

TARGET is {_TARGETS}.

  --report   when a process ends, print to stderr where the time of its calls went and what was saved
"""
_STARTUP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "fastlane", "startup")


def main() -> None:
    """Run the command line `fastlane`."""
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    from fastlane.cli import main

    main()


def run(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the program that the arguments name."""
    command = list(arguments)
    environment = dict(os.environ)
    while command and command[0].startswith("-") and command[0][:2] not in ("-m", "-c"):
        option = command.pop(0)
        if option in ("-h", "--help"):
            sys.stdout.write(_HELP)
            sys.exit()
        if option != "--report":
            _refuse(f"unknown option {option!r}; options of the program come after TARGET")
        # The program keeps this process's number, which tells it from its child processes.
        environment["FASTLANE_RUN_REPORT"] = str(os.getpid())
    if not any(command[:1]) or command in (["-m"], ["-c"]):
        _refuse(f"expected {_TARGETS}, got {' '.join(command) or 'nothing'}")
    name = command[0]
    if name.endswith(".py") and not os.path.isfile(name):
        _refuse(f"there is no file {name!r}")
    if name.startswith("-") or name.endswith(".py") or os.path.isfile(os.path.join(name, "__main__.py")):
        command = [sys.executable, *_interpreter_options(), *command]
    elif os.name == "posix":
        import signal

        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a command would inherit that
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, environment.get("PYTHONPATH")]))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _refuse(f"cannot run {name!r}: {error.strerror}; expected {_TARGETS}")


def _interpreter_options() -> list[str]:
    """Return the options of `python -u -m fastlane run ...`. A script's are not the user's."""
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    options = before[: before.index("-m")] if "-m" in before else []
    if options and (sys.flags.ignore_environment or sys.flags.no_site):
        _refuse("with Python's options -E, -I and -S the program would not read PYTHONPATH: leave them out")
    return options


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"{_USAGE}\nfastlane run: {why}\n")
    sys.exit(2)

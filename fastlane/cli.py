"""The command `fastlane`: its parts are imported when they are called, so that a missing extra is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import FastlaneError, MissingExtraError

if TYPE_CHECKING:
    import typer

_ABOUT = "A drop-in OpenAI client that makes calls faster from the client's side, and measures it."

_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "bench": ("bench._command", "compare clients, plays and loads; for charts add charts", "bench"),
    "doctor": ("doctor._command", "examine a provider", "cli"),
    "emulator": ("emulator._command", "run an OpenAI-compatible provider; with TLS it needs bench", "cli"),
    "trace": ("traces._command", "show the spans of a trace file", "cli"),
    "live": ("traces._command", "follow the calls of running applications", "cli"),
    "batch": ("batch.command", "run and inspect the offline queue", "cli,batch"),
}
"""Each with its module, in which it has its name, what it does, and the extras that it needs."""

_RUN = "run a program, unchanged, with fastlane's clients"

_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)  # without typer, which a base install does not have
        return
    if sys.argv[1:2] == ["run"]:
        from fastlane_run import run

        run(sys.argv[2:])
    try:
        app = command_line(*sys.argv[1:2])
    except MissingExtraError as error:
        if sys.argv[1:] not in ([], ["--help"]):
            sys.exit(f"fastlane: {error}")
        print(f"Usage: fastlane COMMAND [ARGS]...\n\n{_ABOUT}\n")
        print(f"  {'run':10} {_RUN}")
        for name, (_, what, extras) in _COMMANDS.items():
            print(f"  {name:10} {what:60} pip install 'fastlane-llm[{extras}]'")
        print("\nIn a clone: pip install '.[cli]', and so on.")
        return
    app()


def command_line(asked: str | None = None) -> typer.Typer:
    """Make the command line.

    Where `asked`, the first argument, is the name of a command it is the only one: each takes up to a second to import.

    Raises MissingExtraError if `asked` needs a package that is not installed.
    """
    try:
        import typer
        from typer.core import TyperGroup
    except ModuleNotFoundError as error:
        raise MissingExtraError("cli", error.name or "typer") from error

    class Commands(TyperGroup):
        """Reports errors in one line: exit code 2 for input that cannot work, 1 for all else, 130 after Ctrl-C."""

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # typer ends without a word
            except OSError as error:
                code, words = 1, f"{error.filename or 'the output'}: {error.strerror or error}"
            except FastlaneError as error:
                code, words = 2 if isinstance(error, (ValueError, LookupError)) else 1, str(error)
            except KeyboardInterrupt:
                raise typer.Exit(_INTERRUPTED) from None
            typer.echo(f"fastlane {ctx.invoked_subcommand}: {words}", err=True)
            raise typer.Exit(code)

    def print_version(asked_for: bool) -> None:
        if asked_for:
            typer.echo(__version__)
            raise typer.Exit

    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", callback=print_version, is_eager=True
        ),
    ) -> None:
        """Take the options that belong to no command."""

    app = typer.Typer(
        name="fastlane",
        cls=Commands,
        help=_ABOUT,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    if asked not in _COMMANDS:
        app.command("run", help=f"{_RUN}.")(lambda: None)  # `main` runs it, without typer
    for name, (module, _, extras) in _COMMANDS.items():
        if asked in _COMMANDS and asked != name:
            continue
        try:
            command = getattr(import_module(f".{module}", __package__), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "fastlane":
                raise
            if asked == name:
                raise MissingExtraError(extras, error.name) from error
            app.command(name, help=f"Needs the extra {extras!r}, which is not installed.")(lambda: None)
        else:
            if isinstance(command, typer.Typer):
                app.add_typer(command)
            else:
                app.command()(command)
    return app

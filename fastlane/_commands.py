"""The commands of the command line, each from the part that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

from ._version import __version__
from .errors import FastlaneError, MissingExtraError

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as error:
    raise MissingExtraError("cli", error.name or "typer") from error


# Each with its module, in which it has its name, and the extra that it needs.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "bench": ("bench._command", "bench"),
    "doctor": ("doctor._command", "cli"),
    "emulator": ("emulator._command", "cli"),
    "batch": ("batch.command", "batch"),
    "trace": ("traces._command", "cli"),
    "live": ("traces._command", "cli"),
}


_INTERRUPTED = 130


class _Commands(TyperGroup):
    """Reports errors in one line, and ends with their exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Exit codes: 2 for input that cannot work, 1 for all else that fails, 130 after Ctrl-C."""
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


def command_line(asked: str | None = None) -> typer.Typer:
    """Make the command line.

    Where `asked`, the first argument, is the name of a command it is the only one: each takes up to a second to import.

    Raises MissingExtraError if `asked` needs a package that is not installed.
    """
    app = typer.Typer(
        name="fastlane",
        cls=_Commands,
        help="A drop-in OpenAI client that makes calls faster from the client's side, and measures it.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, (module, extra) in _COMMANDS.items():
        if asked in _COMMANDS and asked != name:
            continue
        try:
            command = getattr(import_module(f".{module}", __package__), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "fastlane":
                raise
            if asked == name:
                raise MissingExtraError(extra, error.name) from error
            app.command(name, help=f"Needs the extra {extra!r}, which is not installed.")(_missing)
        else:
            if isinstance(command, typer.Typer):
                app.add_typer(command)
            else:
                app.command()(command)
    return app


def _missing() -> None:
    """Stand in the list of commands for one that cannot be imported."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""

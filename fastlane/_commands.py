"""The commands of the command line, each from the part that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from ._version import __version__
from .errors import MissingExtraError

try:
    import typer
except ModuleNotFoundError as error:
    raise MissingExtraError("cli", error.name or "typer") from error


def command_line(asked: str | None = None) -> typer.Typer:
    """Make the command line.

    Where `asked`, the first argument, is the name of a command it is the only one: each takes up to a second to import.

    Raises MissingExtraError where `asked` needs a package that is not installed.
    """
    app = typer.Typer(
        name="fastlane",
        help="A drop-in OpenAI client that makes calls faster from the client's side, and measures it.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, (add, extra) in _COMMANDS.items():
        if asked in _COMMANDS and asked != name:
            continue
        try:
            add(app)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "fastlane":
                raise
            if asked == name:
                raise MissingExtraError(extra, error.name) from error
            app.command(name, help=f"Needs the extra {extra!r}, which is not installed.")(_missing)
    return app


def _missing() -> None:
    """Stand in the list of commands for one that cannot be imported."""


def _bench(app: typer.Typer) -> None:
    from .bench._command import bench

    app.add_typer(bench)


def _doctor(app: typer.Typer) -> None:
    from .doctor._command import doctor

    app.command()(doctor)


def _emulator(app: typer.Typer) -> None:
    from .emulator._command import emulator

    app.command()(emulator)


def _version(app: typer.Typer) -> None:
    app.command()(version)


def _batch(app: typer.Typer) -> None:
    from .batch.command import batch

    app.add_typer(batch)


def _trace(app: typer.Typer) -> None:
    from .traces._command import trace

    app.add_typer(trace)


def _live(app: typer.Typer) -> None:
    from .traces._command import live

    app.command()(live)


# Each with the extra that it needs.
_COMMANDS: Mapping[str, tuple[Callable[[typer.Typer], None], str]] = {
    "bench": (_bench, "bench"),
    "doctor": (_doctor, "cli"),
    "emulator": (_emulator, "cli"),
    "version": (_version, "cli"),
    "batch": (_batch, "batch"),
    "trace": (_trace, "cli"),
    "live": (_live, "cli"),
}


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""

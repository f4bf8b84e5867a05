"""The commands of the command line, each from the part that it belongs to."""

from __future__ import annotations

from typing import Annotated

from . import __version__
from ._exceptions import MissingExtraError

try:
    import typer

    from .batch._command import batch
    from .bench._command import bench
    from .doctor._command import doctor
    from .emulator._command import emulator
    from .traces._command import trace
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] == "fastlane":
        raise
    raise MissingExtraError("bench", error.name) from error

app = typer.Typer(
    name="fastlane",
    help="A drop-in OpenAI client that makes calls faster from the client's side, and measures it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(bench)
app.command()(doctor)
app.command()(emulator)
app.add_typer(batch)
app.add_typer(trace)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""

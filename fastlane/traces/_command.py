"""The commands `fastlane trace view`, `fastlane trace list` and `fastlane live`."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import webbrowser
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Annotated, Final

import typer

from ..errors import ConfigurationError
from ..records.formatting import counted, duration, figure, percent
from ._entries import entries as entries_of
from ._live import Follower, LiveCall, LiveServer
from ._model import TraceEntry
from ._otlp import SpanFile, TraceFileError, read_spans
from ._page import page

_POLL_S: Final = 0.5
_File = Annotated[Path | None, typer.Argument(help="A file of spans as OTLP-JSON.", show_default=False)]
_Last = Annotated[
    bool, typer.Option("--last", help="Take the newest file that fastlane.telemetry.configure() had spans written to.")
]
_OpenIt = Annotated[
    bool | None,
    typer.Option(
        "--open/--no-open", help="Open the page in a browser. If not given: on a terminal.", show_default=False
    ),
]

trace = typer.Typer(name="trace", help="Look at traces that were written to a file.", no_args_is_help=True)


@trace.command()
def view(
    file: _File = None,
    last: _Last = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page; if not given: beside the file, or for --last to a temporary one.",
            show_default=False,
        ),
    ] = None,
    open_it: _OpenIt = None,
) -> None:
    """Write one HTML page with the waterfall of each user action and call, and print where it is.

    The page loads nothing and sends nothing: it can be kept, mailed, and opened anywhere.

    Exit codes: 0 for a page that was written, 2 for a file that cannot be read or written.
    """
    path = _chosen(file, last=last)
    read, entries = _read(path)
    written = _write(page(read, entries), path, out, is_own=last)
    typer.echo(written)
    _show(written.resolve().as_uri(), open_it)


@trace.command(name="list")
def listed(file: _File = None, last: _Last = False) -> None:
    """Print a line for each user action and each call without one.

    Exit codes: 0 if the file was read, 2 if it cannot be.
    """
    _, entries = _read(_chosen(file, last=last))
    for entry in entries:
        _print(_line(entry))


def live(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Where trace files are written; if not given, where fastlane.telemetry.configure() has them written.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The page's port on loopback; 0 takes a free one.")] = 0,
    text: Annotated[bool, typer.Option("--text", help="Print a line for each call instead of a page.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Begin with the calls that are in the files now.")] = False,
    open_it: _OpenIt = None,
) -> None:
    """Follow the calls of running applications: times, cache hits, connections, and why a call was slow.

    It follows the trace files that the applications write (`FASTLANE_TRACE_DIR`). Ctrl-C ends it.

    Exit codes: 0 when it was ended, 2 for a directory or a port that cannot be used.
    """
    from ..telemetry.trace_files import directory as own_directory

    place = directory or own_directory()
    if not place.is_dir():
        raise ConfigurationError(
            f"{place} is no directory of trace files yet: start an application that calls "
            "fastlane.telemetry.configure(), or name the directory that it writes to"
        )
    follower = Follower(place)
    if not everything:
        follower.skip()
    if text:
        _follow(follower)
        return
    try:
        server = LiveServer(follower, port)
    except OSError as error:
        raise ConfigurationError(f"no page can be served on port {port}: {error}") from error
    typer.echo(server.url)
    _show(server.url, open_it)
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()


def _follow(follower: Follower) -> None:
    """Print a line for each call when it is seen to run, when its first token has come, and when it has ended."""
    pause = Event()
    announced: set[tuple[float, bool]] = set()
    with suppress(KeyboardInterrupt):
        while True:
            for row in follower.poll():
                _print(_live_line(row))
            running = {(row.at_ms, row.time_to_first_token_s is None): row for row in follower.running()}
            for key in running.keys() - announced:
                _print(_live_line(running[key]))
            announced = set(running)
            pause.wait(_POLL_S)


def _live_line(row: LiveCall) -> str:
    first = "-" if row.time_to_first_token_s is None else duration(row.time_to_first_token_s)
    words = [
        f"{_local(row.at_ms / 1e3):%H:%M:%S}",
        f"{row.model:<24}",
        f"first token {first:>8}",
        f"{'so far' if row.is_running else 'total'} {duration(row.duration_s):>8}",
    ]
    if row.tokens_per_second is not None:
        words.append(f"{figure(row.tokens_per_second, 'tokens/s')} tokens/s")
    if row.cached_tokens is not None and row.input_tokens:
        words.append(f"cached {percent(row.cached_tokens / row.input_tokens)}")
    if row.price is not None:
        words.append(f"price {row.price:.4g}")
    if row.connection_reused is not None:
        words.append("connection reused" if row.connection_reused else "new connection")
    if row.attempts > 1:
        words.append(f"{row.attempts} attempts")
    if row.error is not None:
        words.append(f"failed: {row.error}")
    words += ["SLOW"] if row.is_slow else []
    words += ["running"] if row.is_running else []
    return "  ".join((*words, *row.reasons))


def _line(entry: TraceEntry) -> str:
    words = [f"{_local(entry.start_ns / 1e9):%Y-%m-%d %H:%M:%S}", f"{duration(entry.duration_s):>9}", entry.name]
    if len(entry.calls) > 1:
        words.append(f"({counted(len(entry.calls), 'call')})")
    if entry.time_to_first_token_s is not None:
        words.append(f"first token {duration(entry.time_to_first_token_s)}")
    if entry.experiment is not None:
        words.append(f"{entry.experiment.experiment}: {entry.experiment.arm}")
    if entry.error is not None:
        words.append(f"failed: {entry.error}")
    return "  ".join(words)


def _chosen(file: Path | None, *, last: bool) -> Path:
    if file is not None and last:
        raise ConfigurationError(f"give a file or --last, not both: got {file} and --last")
    if file is not None:
        return file
    if not last:
        raise ConfigurationError("give a file of spans, or --last for the newest that fastlane wrote")
    from ..telemetry.trace_files import newest

    found = newest()
    if found is None:
        raise ConfigurationError(
            "--last: no file of spans was written yet. fastlane.telemetry.configure() writes one where no OTEL_* "
            "variable names a collector"
        )
    return Path(found)


def _read(path: Path) -> tuple[SpanFile, tuple[TraceEntry, ...]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceFileError(f"cannot read {path}: {error.strerror or error}") from error
    read = read_spans(data, path.name)
    for note in read.notes:
        _print(f"fastlane trace: {note}", err=True)
    return read, entries_of(read.spans)


def _write(text: str, source: Path, out: Path | None, *, is_own: bool) -> Path:
    """Write the page and return its path: a temporary one where `is_own`, for a folder of traces holds no pages."""
    path = out or source.with_name(f"{source.name.removesuffix('.jsonl').removesuffix('.json')}.html")
    try:
        if out is None and (is_own or not os.access(source.parent, os.W_OK)):
            descriptor, name = tempfile.mkstemp(prefix=f"{source.stem}-", suffix=".html")
            os.close(descriptor)
            path = Path(name)
        # The page is as secret as the file that it is made of.
        path.touch(mode=stat.S_IMODE(source.stat().st_mode))
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _show(address: str, open_it: bool | None) -> None:
    if open_it or (open_it is None and sys.stdout.isatty()):
        webbrowser.open(address)


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(seconds, 1e11)).astimezone()


def _print(line: str, *, err: bool = False) -> None:
    """Print a line with a file's texts, without what would command a terminal."""
    typer.echo("".join(sign if sign.isprintable() else "?" for sign in line), err=err)

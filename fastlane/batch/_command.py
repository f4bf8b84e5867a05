"""The commands `fastlane batch ...`: their options, exit codes, and where their output goes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..errors import ConfigurationError, FastlaneError
from ._client_asked import client_of
from ._errors import StorageError, WorkerDeniedError
from ._lines_in import LineError, jobs_in, line_of
from ._open import open_storage
from ._queue import CHAT, Queue
from ._settings import Lane, WorkerSettings
from ._shown import document, shown
from ._worker import Worker

_INTERRUPTED: Final = 130
_AT_ONCE: Final = 1_000
_PAGE: Final = 500
_WATCH_S: Final = 1.0
# A worker's bar is as new as the worker's own look at the queue.
_REFRESHES_PER_S: Final = 2.0

_Where = Annotated[str, typer.Argument(metavar="QUEUE", help="A file, or the address of a PostgreSQL database.")]
_Schema = Annotated[str, typer.Option(help="Of a PostgreSQL database: the schema that holds the queue.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object in place of text.")]
_SCHEMA: Final = "fastlane_batch"

batch = typer.Typer(name="batch", help="Work with a queue of calls for which nobody waits.", no_args_is_help=True)


@batch.command()
def run(
    where: _Where,
    base_url: Annotated[
        str | None, typer.Option(help="The provider. If not given: $OPENAI_BASE_URL, or OpenAI.", show_default=False)
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable that holds the key. If not given: OPENAI_API_KEY where the URL is OpenAI's, "
            "$OPENAI_BASE_URL or on this machine, and no key elsewhere.",
            show_default=False,
        ),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when every job is over.")] = False,
    lane: Annotated[
        str, typer.Option(help="auto: batches where the provider is known to have them; or batch, or live.")
    ] = "auto",
    linger_s: Annotated[float, typer.Option(help="Seconds that jobs wait for others to share a batch with.")] = 10.0,
    max_attempts: Annotated[int, typer.Option(help="How often a job is sent at most.")] = 5,
    max_concurrency: Annotated[int, typer.Option(help="Live calls at once.")] = 8,
    poll_s: Annotated[float, typer.Option(help="Seconds between the first questions after a batch.")] = 5.0,
    lease_s: Annotated[
        float, typer.Option(help="Seconds after which others go on with what a dead worker began.")
    ] = 60,
    keep_files: Annotated[bool, typer.Option("--keep-files", help="Leave batches' files at the provider.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Work a queue off: as batches where the provider has a batch mode, else as live calls in the background.

    Any number of these may run on one queue, here and on other machines. Ctrl-C and SIGTERM end it after what is under
    way; batches go on at the provider, and the next worker collects them. A worker that is killed loses nothing.

    Exit codes: 0 when every job is over, failed ones too, or after SIGTERM; 1 where the provider refuses the key or the
    queue cannot be written; 2 for input that cannot work; 130 after Ctrl-C.
    """
    errors = Console(stderr=True, soft_wrap=True)
    ended_by: list[int] = []
    with _complaining(errors):
        settings = WorkerSettings(
            lane=cast(Lane, lane),
            linger_s=linger_s,
            max_attempts=max_attempts,
            max_concurrency=max_concurrency,
            poll_s=poll_s,
            longest_poll_s=max(300.0, poll_s),
            lease_s=lease_s,
            delete_files=not keep_files,
        )
        client = client_of(base_url, api_key_env)
        with _queue(where, schema, client=client) as queue:
            worker = Worker(queue.storage, client, settings)
            with _ending(worker, ended_by), _watched(queue, errors):
                worker.run(until_empty=until_empty)
            if ended_by:
                _tell(errors, _what_goes_on(queue))
            elif until_empty:
                _tell(errors, _how_it_ended(queue))
    if signal.SIGINT in ended_by:
        raise typer.Exit(_INTERRUPTED)


@batch.command()
def status(
    where: _Where,
    as_json: _AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until every job is over.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Show how far a queue is.

    Exit codes: 0; 1 where it cannot be read; 2 for input that cannot work; 130 after Ctrl-C.
    """
    with _complaining(Console(stderr=True, soft_wrap=True)), _queue(where, schema) as queue:
        if as_json and not watch:
            typer.echo(json.dumps(document(queue.status()), indent=2))
        elif not watch:
            Console(soft_wrap=True).print(shown(queue.status()))
        else:
            _watch(queue, as_json=as_json)


@batch.command()
def submit(
    where: _Where,
    file: Annotated[Path, typer.Argument(help="JSON lines: OpenAI's batch input, or bodies alone; - for stdin.")],
    endpoint: Annotated[str, typer.Option(help="Where bodies without a url of their own go to.")] = CHAT,
    prefix: Annotated[
        str | None,
        typer.Option(help="Bodies' keys begin with it. If not given: the file's name.", show_default=False),
    ] = None,
    schema: _Schema = _SCHEMA,
) -> None:
    """Put a file's calls into a queue. Done again it adds nothing: a job of the same key and body is that job.

    A key is a line's custom_id; of a body alone it is the prefix and the line's number.

    Exit codes: 0; 1 where the queue cannot be written; 2 for a line that is no job, or another job under a known key.
    """
    errors = Console(stderr=True, soft_wrap=True)
    count = 0
    with _complaining(errors), _opened(file) as lines, _queue(where, schema, create=True) as queue:
        before = queue.status().total
        try:
            jobs = jobs_in(lines, prefix=prefix or (file.stem if str(file) != "-" else "stdin"), endpoint=endpoint)
            while several := list(itertools.islice(jobs, _AT_ONCE)):
                count += len(queue.storage.add(several))
        except (LineError, FastlaneError):
            if count:
                _tell(errors, f"{count:,} jobs before that are in the queue: put it right and submit the file again")
            raise
        new = queue.status().total - before
        typer.echo(f"{count:,} jobs, {new:,} of them new")


@batch.command()
def results(
    where: _Where,
    out: Annotated[Path | None, typer.Option(help="Write them here in place of stdout.", show_default=False)] = None,
    after: Annotated[int, typer.Option(help="Leave out those up to this place, as it was told before.")] = 0,
    schema: _Schema = _SCHEMA,
) -> None:
    """Write the answers of all jobs that are over, as lines of OpenAI's output files; custom_id is the job's key.

    Says on stderr how many are not over, and after which place to go on.

    Exit codes: 0; 1 where the queue cannot be read or the file not be written; 2 for input that cannot work.
    """
    errors = Console(stderr=True, soft_wrap=True)
    with _complaining(errors), _queue(where, schema) as queue:
        written = 0
        with _written(out) if out is not None else _stdout() as file:
            while page := queue.storage.answers_after(after, _PAGE):
                for answer in page:
                    file.write(line_of(answer))
                after, written = page[-1].sequence, written + len(page)
        left = queue.storage.unfinished()
        _tell(errors, f"{written:,} answers up to place {after}; {left:,} jobs are not over")


@batch.command()
def cancel(
    where: _Where,
    keys: Annotated[list[str] | None, typer.Argument(help="The jobs' keys.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs that are not over.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Cancel jobs: what was not sent never is; what was is not sent again, and its answer is kept if it comes.

    Exit codes: 0; 1 where the queue cannot be written; 2 for a key that is not in it.
    """
    if bool(keys) == everything:
        raise typer.BadParameter("name the jobs by their keys, or all that are not over by --all")
    with _complaining(Console(stderr=True, soft_wrap=True)), _queue(where, schema) as queue:
        found = queue.cancel(None if everything else keys)
        over = sum(job.state == "cancelled" for job in found)
        under_way = sum(job.cancel_asked and not job.over for job in found)
        typer.echo(f"{over:,} cancelled, {under_way:,} under way and not sent again")


@batch.command()
def retry(
    where: _Where,
    keys: Annotated[list[str] | None, typer.Argument(help="The jobs' keys.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All failed jobs.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Let failed jobs wait again, as if they had never been sent.

    Exit codes: 0; 1 where the queue cannot be written; 2 for a key that is not in it.
    """
    if bool(keys) == everything:
        raise typer.BadParameter("name the jobs by their keys, or all failed ones by --all")
    with _complaining(Console(stderr=True, soft_wrap=True)), _queue(where, schema) as queue:
        again = queue.retry_failed(None if everything else keys)
        typer.echo(f"{again:,} jobs wait again")


def _watch(queue: Queue, *, as_json: bool) -> None:
    import threading

    pause = threading.Event()
    console = Console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            now = queue.status()
            if as_json:
                typer.echo(json.dumps(document(now)))
            else:
                live.update(shown(now), refresh=True)
            if now.over == now.total:
                return
            pause.wait(_WATCH_S)


@contextmanager
def _watched(queue: Queue, errors: Console) -> Iterator[None]:
    """Show how far the queue is, on a terminal, while the block runs."""
    if not errors.is_terminal:
        yield
        return

    def look() -> Any:
        try:
            return shown(queue.status())
        except StorageError as error:
            return Text(str(error))

    with Live(console=errors, get_renderable=look, refresh_per_second=_REFRESHES_PER_S, transient=False):
        yield


@contextmanager
def _ending(worker: Worker, ended_by: list[int]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end a worker after what is under way, and a second one at once."""

    def end(number: int, _frame: FrameType | None) -> None:
        if ended_by:
            raise KeyboardInterrupt
        ended_by.append(number)
        # In a thread, for which none of the locks are needed that what was interrupted here may hold.
        start_new_thread(worker.stop, ())

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _how_it_ended(queue: Queue) -> str:
    jobs = queue.status().jobs
    told = ", ".join(f"{jobs[state]:,} {state}" for state in ("done", "failed", "cancelled"))
    return told + (": `fastlane batch results` says why jobs failed" if jobs["failed"] else "")


def _what_goes_on(queue: Queue) -> str:
    now = queue.status()
    at_provider = sum(one.state in ("created", "ended") for one in now.batches)
    left = now.total - now.over
    if not left:
        return "ended: every job is over"
    goes_on = f"{at_provider:,} batches go on at the provider; " if at_provider else ""
    return f"ended: {left:,} jobs are not over, and kept. {goes_on}run the command again to go on"


@contextmanager
def _queue(where: str, schema: str, client: Any = None, *, create: bool = False) -> Iterator[Queue]:
    if create:
        open_storage(where, schema=schema).close()
    with Queue(where, client, schema=schema) as queue:
        assert queue.storage is not None  # raises where there is no queue
        yield queue


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    if not file.exists():
        raise ConfigurationError(f"there is no file {str(file)!r}: JSON lines are expected, or - for stdin")
    with file.open("rb") as opened:
        yield opened


@contextmanager
def _written(file: Path) -> Iterator[Any]:
    # A file that is made here is its owner's alone: answers are in it.
    with open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        yield opened


@contextmanager
def _stdout() -> Iterator[Any]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def _complaining(errors: Console) -> Iterator[None]:
    """Say what went wrong in one line, and leave with the exit code for it."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read has enough. Nothing more is written, at the end of the process neither.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (StorageError, WorkerDeniedError) as error:
        _tell(errors, str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        _tell(errors, f"{error.filename or 'the output'}: {error.strerror or error}")
        raise typer.Exit(1) from None
    except (LineError, FastlaneError) as error:
        _tell(errors, str(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _tell(errors: Console, text: str) -> None:
    errors.print(f"fastlane batch: {text}", markup=False, emoji=False, highlight=False)

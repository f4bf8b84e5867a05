"""The commands `fastlane batch ...`: their options, exit codes, and where their output goes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..client.clients import OpenAI
from ..errors import ConfigurationError
from ..providers.keys import key_variable
from ..providers.origins import origin_of
from .answers import line_of
from .jobs import Status
from .queue import Queue, open_storage
from .requests import jobs_in
from .settings import WorkerSettings
from .worker import QueueWorker

_AT_ONCE = 1_000

_Where = Annotated[str, typer.Argument(metavar="QUEUE", help="A file, or the address of a PostgreSQL database.")]
_Schema = Annotated[str, typer.Option(help="Of a PostgreSQL database: the schema that holds the queue.")]
_Keys = Annotated[list[str] | None, typer.Argument(help="The jobs' keys.", show_default=False)]
_SCHEMA = "fastlane_batch"

batch = typer.Typer(
    name="batch",
    help="Work with a queue of calls whose answers can wait. Exit codes: 0; 1 if the provider refuses the key, or "
    "the queue or a file cannot be read or written; 2 for input that cannot work; 130 after Ctrl-C.",
    no_args_is_help=True,
)


@batch.command()
def run(
    where: _Where,
    base_url: Annotated[
        str | None, typer.Option(help="The provider. If not given: $OPENAI_BASE_URL, or OpenAI.", show_default=False)
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable that holds the key. If not given: OPENAI_API_KEY if the URL is OpenAI's, "
            "$OPENAI_BASE_URL or on this machine, and no key elsewhere.",
            show_default=False,
        ),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when all jobs are finished.")] = False,
    lane: Annotated[
        str, typer.Option(help="auto: batches if the provider has them, else live calls. Or batch, or live.")
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A field of WorkerSettings, such as linger_s=0. Repeatable."),
    ] = None,
    schema: _Schema = _SCHEMA,
) -> None:
    """Process a queue: in batches if the provider has a batch mode, else by live calls in the background.

    Any number may run on one queue. Ctrl-C and SIGTERM end one after what is under way; a killed one loses nothing.
    """
    ended_by: list[int] = []
    worker_settings = _settings_of(lane, settings or [])
    client = _client_of(base_url, api_key_env)
    with Queue(where, client, schema=schema) as queue:
        worker = QueueWorker(queue.storage, client, worker_settings)
        if queue.status().workers:
            _note("other workers hold jobs; those of a killed one go on when its lease ends (lease_s, usually 60 s)")
        with _stopped_by_signals(worker, ended_by):
            worker.work(until_empty=until_empty)
        now = queue.status()
        _note(", ".join(_counts(now)) + ("" if now.over == now.total else ". Run the command again to go on"))
    if signal.SIGINT in ended_by:
        raise KeyboardInterrupt


@batch.command()
def status(
    where: _Where,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object in place of text.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Show the progress of a queue, why jobs have failed, and whether a worker runs."""
    with Queue(where, schema=schema) as queue:
        now = queue.status()
        figures = {"total": now.total, "over": now.over, **asdict(now)}
        typer.echo(json.dumps(figures) if as_json else _shown(now))


@batch.command()
def submit(
    where: _Where,
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="JSON lines: OpenAI's batch input; - for stdin."),
    ],
    schema: _Schema = _SCHEMA,
) -> None:
    """Add the calls of a file to a queue, under their custom_id. Repeating it adds nothing."""
    open_storage(where, schema=schema).close()
    with Queue(where, schema=schema) as queue:
        before, count = queue.status().total, 0
        jobs = jobs_in(file)
        while several := list(itertools.islice(jobs, _AT_ONCE)):
            count += len(queue.storage.add(several))
        now = queue.status()
        typer.echo(f"{count:,} jobs, {now.total - before:,} of them new")
        if warning := _without_worker(now):
            _note(warning)


@batch.command()
def results(
    where: _Where,
    out: Annotated[Path | None, typer.Option(help="Write them here in place of stdout.", show_default=False)] = None,
    after: Annotated[int, typer.Option(help="Continue after this number, which an earlier run printed.")] = 0,
    schema: _Schema = _SCHEMA,
) -> None:
    """Write the answers of all finished jobs, as lines of OpenAI's output files; custom_id is the job's key.

    Prints on stderr how many are unfinished, and the number for --after.
    """
    with Queue(where, schema=schema) as queue:
        storage, written = queue.storage, 0
        # A file is its owner's alone: answers are in it.
        with open(out, "wb", opener=partial(os.open, mode=0o600)) if out else nullcontext(sys.stdout.buffer) as file:
            while page := storage.answers(after=after, most=_AT_ONCE):
                file.writelines(map(line_of, page))
                after, written = page[-1].sequence, written + len(page)
            file.flush()
        _note(f"{written:,} answers up to number {after}; {storage.unfinished():,} jobs are unfinished")


@batch.command()
def cancel(
    where: _Where,
    keys: _Keys = None,
    everything: Annotated[bool, typer.Option("--all", help="All unfinished jobs.")] = False,
    schema: _Schema = _SCHEMA,
) -> None:
    """Cancel jobs. Unsent jobs are never sent; the answer of a job that was sent is kept if it arrives."""
    if bool(keys) == everything:
        raise typer.BadParameter("name the jobs by their keys, or all unfinished ones by --all")
    with Queue(where, schema=schema) as queue:
        found = queue.cancel(None if everything else keys)
        over = sum(job.state == "cancelled" for job in found)
        under_way = sum(job.cancel_asked and not job.over for job in found)
        typer.echo(f"{over:,} cancelled, {under_way:,} under way and not sent again")


@batch.command()
def retry(
    where: _Where,
    keys: _Keys = None,
    everything: Annotated[bool, typer.Option("--all", help="All failed jobs.")] = False,
    abandon: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Jobs of batches at this base URL, which no longer exists. A batch that still runs is answered twice.",
            show_default=False,
        ),
    ] = None,
    schema: _Schema = _SCHEMA,
) -> None:
    """Queue failed jobs again, or the jobs of batches that you give up."""
    if bool(keys) + everything + bool(abandon) != 1:
        raise typer.BadParameter("name the jobs by their keys, all failed ones by --all, or an address by --abandon")
    with Queue(where, schema=schema) as queue:
        again = queue.abandon(abandon) if abandon else queue.retry_failed(None if everything else keys)
        typer.echo(f"{again:,} jobs wait again")


def _settings_of(lane: str, given: list[str]) -> WorkerSettings:
    """Return the settings of a worker. `given`: NAME=VALUE, with a number, true, false or null as value."""
    try:
        pairs = [setting.partition("=") for setting in given]
        values = {name: json.loads(value) for name, _, value in pairs}
    except ValueError:
        raise ConfigurationError("--set expects NAME=VALUE, such as linger_s=0, with a number as value") from None
    try:
        return WorkerSettings(**{"lane": lane, **values})
    except TypeError as error:
        raise ConfigurationError(str(error)) from None


def _client_of(base_url: str | None, api_key_env: str | None) -> OpenAI:
    """Return a client for a provider. Raises ConfigurationError, which names the variable that is missing.

    OpenAI's key goes to OpenAI, to $OPENAI_BASE_URL and to this machine; another provider needs `api_key_env`.
    """
    url = base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    source, origin = api_key_env or key_variable(url), origin_of(url)
    if source is None:
        raise ConfigurationError("name the environment variable that holds this provider's key: --api-key-env NAME")
    key = os.environ.get(source, "").strip()
    # A server on this machine needs none, but the client does.
    if not key and (api_key_env or origin is None or not origin.is_local):
        raise ConfigurationError(f"expected the provider's key in the environment variable {source}, which is not set")
    return OpenAI(base_url=url, api_key=key or "none")


@contextmanager
def _stopped_by_signals(worker: QueueWorker, ended_by: list[int]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end a worker after what is under way, and a second one at once."""

    def end(number: int, _frame: FrameType | None) -> None:
        if ended_by:
            raise KeyboardInterrupt
        ended_by.append(number)
        # In a thread: the interrupted code may hold a lock.
        start_new_thread(worker.stop, ())

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _note(text: str) -> None:
    typer.echo(f"fastlane batch: {text}", err=True)


def _counts(now: Status) -> list[str]:
    return [f"{count:,} {state}" for state, count in now.jobs.items() if count]


def _without_worker(now: Status) -> str | None:
    return None if now.workers or now.over == now.total else "no worker runs: start one by `fastlane batch run`"


def _shown(now: Status) -> str:
    """Return a status as lines for the terminal."""
    lines = ["  ".join(_counts(now)) or "the queue is empty"]
    if now.total:
        lines.append(f"{now.over:,} of {now.total:,} finished ({now.over / now.total:.0%})")
    lines += filter(None, [_without_worker(now)])
    if now.failures:
        lines.append("failed: " + ", ".join(f"{count:,} {reason}" for reason, count in now.failures.items()))
    lines.append(f"{now.input_tokens:,} tokens in ({now.cached_tokens:,} of them cached), {now.output_tokens:,} out")
    for one in now.batches:
        where = f", {one.provider_state} at the provider" if one.provider_state else ""
        done = f"{one.provider_done:,} done and {one.provider_failed:,} failed of {one.requests:,}"
        lines.append(f"{one.name} ({one.model}): {one.state}{where}, {done}")
    return "\n".join(lines)

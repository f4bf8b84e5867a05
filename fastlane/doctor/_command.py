"""The command `fastlane doctor`: its options, its question before tokens are spent, and where its output goes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..providers.keys import OPENAI_KEY, key_variable
from ._examination import Cost, Examination, examine
from ._report import document, facts_file, print_report
from ._session import DoctorSettings, target_of

_WIDTH_WITHOUT_TERMINAL = 120
_INTERRUPTED = 130


def doctor(
    url: Annotated[str, typer.Argument(help="The API's base URL, such as https://api.example.com/v1.")],
    model: Annotated[str | None, typer.Option(help="The model; not needed if the provider lists only one.")] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help=f"Environment variable that holds the key. If not given: {OPENAI_KEY} where the URL is OpenAI's, "
            "$OPENAI_BASE_URL or on this machine, and no key elsewhere."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Look at what costs tokens too, without asking.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="One connection and one endpoint only, no pauses.")] = False,
    idle_s: Annotated[float, typer.Option(help="The longest idle time of a connection to try; 0: none.")] = 20.0,
    timeout_s: Annotated[float, typer.Option(help="The longest wait for an answer of the model, in seconds.")] = 60.0,
    facts_out: Annotated[Path | None, typer.Option(help="Write a facts file, for RequestEncoding(facts=…).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object in place of text.")] = False,
) -> None:
    """Find out what reaching a provider costs from here and what it takes.

    The first part costs nothing. Before it spends tokens, it asks; --yes answers, and without a terminal that
    part is left out. The key goes to the URL and nowhere else; prompts and answers are not shown.

    Exit codes: 0 if the provider was reached, 1 if it was not or the facts could not be written, 2 for input that
    cannot work, 130 for an interrupted run.
    """
    errors = Console(stderr=True, soft_wrap=True)
    target = target_of(url)
    source = api_key_env or key_variable(target.base_url)
    settings = DoctorSettings(
        target=target,
        model=model,
        key=os.environ.get(source, "").strip() or None if source else None,
        key_source=source or "an environment variable, and name it with --api-key-env",
        quick=quick,
        idle_s=idle_s,
        answer_timeout_s=timeout_s,
    )
    examination = _examine(settings, errors, yes=yes)
    code = _report(examination, facts_out, errors, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _examine(settings: DoctorSettings, errors: Console, *, yes: bool) -> Examination:
    with errors.status("starting") as progress:

        def allow(cost: Cost, model: str) -> bool:
            if yes:
                return True
            if not (sys.stdin.isatty() and errors.is_terminal):
                return False
            progress.stop()
            errors.print(in_words(cost, model), markup=False, highlight=False)
            try:
                return typer.confirm("Go on?", default=False, err=True)
            except typer.Abort:  # Ctrl-C: what was found by then is still to be shown
                raise KeyboardInterrupt from None
            finally:
                progress.start()

        return examine(settings, allow=allow, on_check=progress.update)


def in_words(cost: Cost, model: str) -> str:
    return (
        f"The rest asks {model} about {cost.calls} times, for about {cost.input_tokens:,} input tokens and at most "
        f"{cost.output_tokens:,} output tokens altogether."
    )


def _report(examination: Examination, facts_out: Path | None, errors: Console, *, as_json: bool) -> int:
    """Print what was found, write the facts, and return the exit code."""
    text = facts_file(examination)
    problem = "no facts were measured, so none are written" if facts_out and text is None else None
    if as_json:
        typer.echo(json.dumps(document(examination, text), ensure_ascii=False, indent=2))
    else:
        console = Console()
        console = console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL)
        print_report(examination, console)
        if text is not None and facts_out is None:
            console.print("\nFacts", style="bold")
            typer.echo(text)
    if facts_out is not None and text is not None:
        try:
            facts_out.write_text(text, encoding="utf-8")
            errors.print(f"The facts are in {facts_out}.", markup=False, highlight=False)
        except OSError as error:
            problem = f"the facts could not be written to {facts_out}: {error.strerror or error}"
    if problem:
        errors.print(f"fastlane doctor: {problem}", style="red", markup=False, highlight=False)
    if examination.interrupted:
        return _INTERRUPTED
    return 1 if problem or not examination.is_reached else 0

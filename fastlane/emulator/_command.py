"""The command `fastlane emulator`: a provider in the foreground until Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fastlane._exceptions import ConfigurationError
from fastlane.emulator._emulator import Emulator
from fastlane.emulator._presets import preset, presets


def emulator(
    preset_name: Annotated[str, typer.Option("--preset", help="The provider; see --list-presets.")] = "bench",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65_535)] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on; keep to loopback.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts and delays.")] = 0,
    no_tls: Annotated[bool, typer.Option("--no-tls", help="Plain HTTP/1.1, without TLS and HTTP/2.")] = False,
    rtt_ms: Annotated[float, typer.Option(help="Put an emulated wire of this round trip in front.", min=0)] = 0.0,
    log: Annotated[Path | None, typer.Option(help="At the end write one JSON line per request here.")] = None,
    list_presets: Annotated[bool, typer.Option("--list-presets", help="List the presets and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Run an OpenAI-compatible provider on this machine, until Ctrl-C."""
    if list_presets:
        _print_presets(as_json=as_json)
        return
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    # Before the process starts, so that no signal can come between and leave it or its files behind.
    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGTERM, ask_to_stop)
    try:
        model = preset(preset_name)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--preset") from error
    wire = None
    if rtt_ms:
        from fastlane.emulator.wire import Wire

        wire = Wire(round_trip_time_s=rtt_ms / 1_000)
    with Emulator(model=model, seed=seed, wire=wire, host=host, port=port, tls=not no_tls) as running:
        _print_running(running, preset_name, as_json=as_json)
        # In steps: on Windows an unlimited wait would not let the signal through.
        while not stop.wait(0.5):
            pass
        records = running.log()
        if log:
            log.write_text("".join(json.dumps(record.to_json()) + "\n" for record in records), encoding="utf-8")
    if not as_json:
        typer.echo(f"\n{len(records)} requests answered.")


def _print_presets(*, as_json: bool) -> None:
    known = presets()
    if as_json:
        typer.echo(json.dumps(dict(known)))
        return
    width = max(map(len, known))
    for name, about in known.items():
        typer.echo(f"{name:<{width}}  {about}")


def _print_running(running: Emulator, name: str, *, as_json: bool) -> None:
    authority = running.environment.get("SSL_CERT_FILE")
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "preset": name,
                    "base_url": running.base_url,
                    "direct_base_url": running.direct_base_url,
                    "certificate_authority": authority,
                    "environment": dict(running.environment),
                }
            )
        )
        return
    typer.echo(f"Emulating {name!r}; Ctrl-C stops.\n")
    typer.echo(f"base URL               {running.base_url}")
    if running.base_url != running.direct_base_url:
        typer.echo(f"direct port            {running.direct_base_url}")
    if authority:
        typer.echo(f"certificate authority  {authority}\n")
        typer.echo(f"export SSL_CERT_FILE={authority}")
    trust = f" --cacert {authority}" if authority else ""
    typer.echo(f"export OPENAI_BASE_URL={running.base_url} OPENAI_API_KEY=any\n")
    typer.echo(
        f"curl -N{trust} {running.base_url}/chat/completions -H 'Authorization: Bearer any' "
        "-H 'Content-Type: application/json' "
        """-d '{"model": "any", "stream": true, "messages": [{"role": "user", "content": "Review this."}]}'"""
    )

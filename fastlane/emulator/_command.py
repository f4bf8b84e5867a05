"""The command `fastlane emulator`: a provider in the foreground until Ctrl-C."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer

from fastlane.emulator._emulator import Emulator
from fastlane.emulator._faults import read_faults
from fastlane.emulator.settings import Wire, preset, presets

from ..errors import ConfigurationError


def emulator(
    preset_name: Annotated[str, typer.Option("--preset", help="The provider; see --list-presets.")] = "bench",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of ProviderModel, as JSON or text: late_share=0.05, batches.duration_s=5. Repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    fault: Annotated[list[str] | None, typer.Option(help="E.g. 'status=500;only=encoded'. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts and delays.")] = 0,
    rtt_ms: Annotated[float, typer.Option(help="Put an emulated wire of this round trip in front.", min=0)] = 0.0,
    port: Annotated[int, typer.Option(help="The port that clients use; 0 takes a free one.", min=0, max=65_535)] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on; keep to loopback.")] = "127.0.0.1",
    no_tls: Annotated[bool, typer.Option("--no-tls", help="Plain HTTP/1.1, without TLS and HTTP/2.")] = False,
    http1: Annotated[bool, typer.Option("--http1", help="TLS without HTTP/2.")] = False,
    list_presets: Annotated[bool, typer.Option("--list-presets", help="List the presets and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Run an OpenAI-compatible provider on this machine, until Ctrl-C."""
    if list_presets:
        known = presets()
        typer.echo(json.dumps(dict(known)) if as_json else "\n".join(f"{name:<22} {known[name]}" for name in known))
        return
    option = "--preset"
    try:
        model = preset(preset_name)
        option = "--set"
        model = model.changed(_settings(change or ()))
        option = "--fault"
        faults = read_faults(fault or ())
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    wire = Wire(round_trip_time_s=rtt_ms / 1_000) if rtt_ms else None
    stop = threading.Event()
    # Before the process starts, so that no signal can come between and leave it or its files behind.
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Emulator(
            model=model, seed=seed, wire=wire, host=host, port=port, tls=not no_tls, http2=not http1, faults=faults
        ) as running:
            settings = {**model.to_json(), "http2": not (http1 or no_tls), "faults": [str(each) for each in faults]}
            shown = {
                "preset": preset_name,
                "base_url": running.base_url,
                "direct_base_url": running.direct_base_url,
                "certificate_authority": running.environment.get("SSL_CERT_FILE"),
                "environment": dict(running.environment),
                "settings": settings,
            }
            typer.echo(json.dumps(shown) if as_json else "\n".join(_instructions(shown)))
            # In steps: on Windows an unlimited wait would not let the signal through.
            while not stop.wait(0.5):
                pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(texts: Iterable[str]) -> dict[str, Any]:
    """Read `name=value` and `name.name=value` as nested settings. Raises ConfigurationError."""
    settings: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"a setting is written NAME=VALUE, got {text!r}")
        *above, name = path.strip().split(".")
        inner = settings
        for part in above:
            inner = inner.setdefault(part, {})
        try:
            inner[name] = json.loads(value)
        except ValueError:
            inner[name] = value.strip()
    return settings


def _instructions(shown: Mapping[str, Any]) -> Iterator[str]:
    authority, url = shown["certificate_authority"], shown["base_url"]
    yield f"Emulating {shown['preset']!r}; Ctrl-C stops.\n"
    yield f"base URL               {url}"
    yield from (f"fault                  {fault}" for fault in shown["settings"]["faults"])
    if url != shown["direct_base_url"]:
        yield f"direct port            {shown['direct_base_url']}"
    trust = ""
    if authority:
        trust = f" --cacert {shlex.quote(authority)}"
        yield f"certificate authority  {authority}\n"
        yield f"export SSL_CERT_FILE={shlex.quote(authority)}"
    yield f"export OPENAI_BASE_URL={url} OPENAI_API_KEY=any\n"
    yield (
        f"curl -N{trust} {url}/chat/completions -H 'Authorization: Bearer any' -H 'Content-Type: application/json' "
        """-d '{"model": "any", "stream": true, "messages": [{"role": "user", "content": "Review this."}]}'"""
    )

"""The command `fastlane emulator`: a provider in the foreground until Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer

from fastlane.emulator._bodies import ALL_ENCODINGS, checked_encodings, checked_refusal
from fastlane.emulator._connection import WINDOW_BYTES, ConnectionSettings
from fastlane.emulator._emulator import Emulator, EmulatorError
from fastlane.emulator._faults import Fault
from fastlane.emulator.settings import (
    TIMINGS,
    BatchSettings,
    Dialect,
    KeyRateLimits,
    ServiceTier,
    preset,
    presets,
    with_tier,
)

from ..errors import ConfigurationError

_LOAD_SETTINGS = (
    "concurrency", "queue_places", "overload_status", "overload_retry_after_s", "rate_limits", "model_rate_limits",
    "service_tiers", "auto_tier", "refuse_unknown_tiers",
)  # fmt: skip


def emulator(
    preset_name: Annotated[str, typer.Option("--preset", help="The provider; see --list-presets.")] = "bench",
    port: Annotated[int, typer.Option(help="The port that clients use; 0 takes a free one.", min=0, max=65_535)] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on; keep to loopback.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts and delays.")] = 0,
    no_tls: Annotated[bool, typer.Option("--no-tls", help="Plain HTTP/1.1, without TLS and HTTP/2.")] = False,
    http1: Annotated[bool, typer.Option("--http1", help="TLS without HTTP/2.")] = False,
    rtt_ms: Annotated[float, typer.Option(help="Put an emulated wire of this round trip in front.", min=0)] = 0.0,
    max_streams: Annotated[int, typer.Option(help="HTTP/2 requests at once on a connection.")] = 100,
    initial_window: Annotated[
        int, typer.Option(help="HTTP/2: bytes of one body that may come unasked (SETTINGS_INITIAL_WINDOW_SIZE).")
    ] = WINDOW_BYTES,
    connection_window: Annotated[
        int | None, typer.Option(help="HTTP/2: the same for a connection.", show_default="as one body, 65,535 at least")
    ] = None,
    accept_encodings: Annotated[
        str, typer.Option(help="Encodings of request bodies that are taken, with commas between.")
    ] = ",".join(ALL_ENCODINGS),
    refuse_with: Annotated[int, typer.Option(help="The status that refuses another encoding.")] = 415,
    say_accepted: Annotated[
        bool, typer.Option("--say-accepted", help="A 415 names what is taken (accept-encoding, accept).")
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="What goes wrong, e.g. 'status=500;only=encoded'. Repeatable.", metavar="FAULT"),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="The models served, with commas between; others are a 404. Default: any.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="A header of every answer, 'name: value'; 'name:' drops one. Repeatable.", metavar="HEADER"),
    ] = None,
    owned_by: Annotated[str, typer.Option(help="Who owns the models that GET /models lists.")] = "emulator",
    timing: Annotated[
        list[str] | None,
        typer.Option(help=f"Tell the server's own times: {' or '.join(TIMINGS)}. Repeatable.", metavar="WHERE"),
    ] = None,
    no_prompt_cache: Annotated[bool, typer.Option("--no-prompt-cache", help="Remember no prompt.")] = False,
    cached_tokens: Annotated[
        str, typer.Option(help="Where the usage counts cached tokens: standard, none or usage.SOME.PATH.")
    ] = "standard",
    service_tier_path: Annotated[
        str, typer.Option(help="Where answers name the tier that served: standard, none, a field, or usage.FIELD.")
    ] = "standard",
    no_structured_outputs: Annotated[
        bool, typer.Option("--no-structured-outputs", help="Take response_format and ignore it.")
    ] = False,
    refuse_fields: Annotated[
        str | None, typer.Option(help="Fields of a body that are refused with 400, with commas between.")
    ] = None,
    manner: Annotated[
        str, typer.Option(help="How structured answers are written, e.g. 'whitespace;share=0.2'.")
    ] = "exact",
    late_share: Annotated[float, typer.Option(help="The share of requests whose first token is late.")] = 0.0,
    late_factor: Annotated[float, typer.Option(help="How many times as long their first token takes.")] = 20.0,
    late_ms: Annotated[
        float, typer.Option(help="How many milliseconds after a connection its TLS handshake begins.", min=0)
    ] = 0.0,
    concurrency: Annotated[int | None, typer.Option(help="How many requests are worked on at once.", min=1)] = None,
    queue_places: Annotated[
        int | None, typer.Option(help="How many more may wait; others are refused. Default: any number.", min=0)
    ] = None,
    overload_status: Annotated[int, typer.Option(help="The status of those that are refused so.")] = 503,
    overload_retry_after: Annotated[
        float | None, typer.Option(help="When they are told to come again, in seconds. Default: not at all.")
    ] = None,
    rate_limits: Annotated[
        list[str] | None,
        typer.Option(
            help="What a key may ask of a model, e.g. 'requests_per_minute=600;tokens_per_minute=60000;window=fixed', "
            "or 'MODEL:' before it for one model. Repeatable.",
            metavar="LIMITS",
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            help="A service tier, new or changed, e.g. 'flex;time_factor=2;exhausted=0.2'. Repeatable.", metavar="TIER"
        ),
    ] = None,
    auto_tier: Annotated[str, typer.Option(help="The tier of requests that ask for 'auto', or none.")] = "default",
    refuse_unknown_tiers: Annotated[
        bool, typer.Option("--refuse-unknown-tiers", help="A tier that there is not is a 400.")
    ] = False,
    batches: Annotated[
        str, typer.Option(help="How batches are worked off, e.g. 'lines_per_s=500;server_error_share=0.1'.")
    ] = "",
    log: Annotated[Path | None, typer.Option(help="At the end write one JSON line per request here.")] = None,
    list_presets: Annotated[bool, typer.Option("--list-presets", help="List the presets and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Run an OpenAI-compatible provider on this machine, until Ctrl-C."""
    if list_presets:
        _print_presets(as_json=as_json)
        return
    with _naming("--preset"):
        model = preset(preset_name)
    with _naming("--manner"):
        model = dataclasses.replace(model, models=_listed(models), prompt_cache=not no_prompt_cache, manner=manner)
    with _naming("--late-share or --late-factor"):
        model = dataclasses.replace(model, late_share=late_share, late_factor=late_factor)
    with _naming("--rate-limits"):
        model = dataclasses.replace(model, **_rate_limits(rate_limits or ()))
    with _naming("--tier or --auto-tier"):
        tiers = model.service_tiers
        for text in tier or ():
            tiers = with_tier(tiers, ServiceTier.named(text))
        model = dataclasses.replace(
            model, service_tiers=tiers, auto_tier=auto_tier, refuse_unknown_tiers=refuse_unknown_tiers
        )
    with _naming("--concurrency, --queue-places, --overload-status or --overload-retry-after"):
        model = dataclasses.replace(
            model,
            concurrency=model.concurrency if concurrency is None else concurrency,
            queue_places=model.queue_places if queue_places is None else queue_places,
            overload_status=overload_status,
            overload_retry_after_s=overload_retry_after,
        )
    with _naming("--header"):
        headers = [_header(line) for line in header or ()]
    with _naming("--timing, --cached-tokens or --service-tier-path"):
        dialect = Dialect(
            headers=tuple(headers),
            owned_by=owned_by,
            says_accepted=say_accepted,
            timing=cast(Any, tuple(timing or ())),
            cached_tokens_path=cached_tokens,
            service_tier_path=service_tier_path,
            structured_outputs=not no_structured_outputs,
            refused_fields=_listed(refuse_fields),
        )
    with _naming("--batches"):
        batch_settings = BatchSettings.parse(batches)
    with _naming("--fault"):
        faults = [Fault.parse(text) for text in fault or ()]
    with _naming("--accept-encodings or --refuse-with"):
        accepted = checked_encodings(_listed(accept_encodings))
        checked_refusal(refuse_with)
    with _naming("--max-streams, --initial-window or --connection-window"):
        ConnectionSettings(
            max_concurrent_streams=max_streams, window_bytes=initial_window, connection_window_bytes=connection_window
        )
    wire = None
    if rtt_ms:
        from fastlane.emulator.wire import Wire

        wire = Wire(round_trip_time_s=rtt_ms / 1_000)
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    # Before the process starts, so that no signal can come between and leave it or its files behind.
    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        started = Emulator(
            model=model,
            seed=seed,
            wire=wire,
            host=host,
            port=port,
            tls=not no_tls,
            http2=not http1,
            max_concurrent_streams=max_streams,
            initial_window_bytes=initial_window,
            connection_window_bytes=connection_window,
            faults=faults,
            accepted_encodings=accepted,
            encoding_refusal_status=refuse_with,
            dialect=dialect,
            batches=batch_settings,
            late_ms=late_ms,
        )
    except EmulatorError as error:
        for number, handler in before.items():
            signal.signal(number, handler)
        typer.echo(f"fastlane emulator: {error}", err=True)
        raise typer.Exit(1) from None
    with started as running:
        described = model.to_json()
        differs = {
            "http2": not (http1 or no_tls),
            "accepted_encodings": list(accepted),
            "encoding_refusal_status": refuse_with,
            "faults": [str(each) for each in faults],
            "models": list(model.models),
            "initial_window_bytes": initial_window,
            "max_concurrent_streams": max_streams,
            "prompt_cache": model.prompt_cache,
            "manner": model.manner,
            "late_share": model.late_share,
            "late_factor": model.late_factor,
            "late_ms": late_ms,
            **{name: described[name] for name in _LOAD_SETTINGS},
            "dialect": dialect.to_json(),
            "batches": batch_settings.to_json(),
        }
        _print_running(running, preset_name, differs, as_json=as_json)
        # In steps: on Windows an unlimited wait would not let the signal through.
        while not stop.wait(0.5):
            pass
        records = running.log()
        if log:
            log.write_text("".join(json.dumps(record.to_json()) + "\n" for record in records), encoding="utf-8")
    if not as_json:
        typer.echo(f"\n{len(records)} requests answered.")


@contextlib.contextmanager
def _naming(option: str) -> Iterator[None]:
    """Turn a wrong setting into a usage error that names the option."""
    try:
        yield
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _rate_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Read the limits of all models, and of single ones; without any, what the preset has stays."""
    settings: dict[str, Any] = {}
    by_model: dict[str, KeyRateLimits] = {}
    for text in texts:
        # A model's name may hold colons, and a setting holds none before its equals sign.
        name, colon, _ = text.partition("=")[0].rpartition(":")
        if colon:
            by_model[name.strip()] = KeyRateLimits.parse(text[len(name) + 1 :])
        else:
            settings["rate_limits"] = KeyRateLimits.parse(text)
    return {**settings, "model_rate_limits": by_model} if by_model else settings


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise ConfigurationError(f"a header is written 'name: value', got {line!r}")
    return name.strip(), value.strip()


def _print_presets(*, as_json: bool) -> None:
    known = presets()
    if as_json:
        typer.echo(json.dumps(dict(known)))
        return
    width = max(map(len, known))
    for name, about in known.items():
        typer.echo(f"{name:<{width}}  {about}")


def _print_running(running: Emulator, name: str, settings: Mapping[str, object], *, as_json: bool) -> None:
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
                    "settings": settings,
                }
            )
        )
        return
    typer.echo(f"Emulating {name!r}; Ctrl-C stops.\n")
    typer.echo(f"base URL               {running.base_url}")
    for fault in cast(list[str], settings["faults"]):
        typer.echo(f"fault                  {fault}")
    if running.base_url != running.direct_base_url:
        typer.echo(f"direct port            {running.direct_base_url}")
    if authority:
        typer.echo(f"certificate authority  {authority}\n")
        typer.echo(f"export SSL_CERT_FILE={shlex.quote(authority)}")
    trust = f" --cacert {shlex.quote(authority)}" if authority else ""
    typer.echo(f"export OPENAI_BASE_URL={running.base_url} OPENAI_API_KEY=any\n")
    typer.echo(
        f"curl -N{trust} {running.base_url}/chat/completions -H 'Authorization: Bearer any' "
        "-H 'Content-Type: application/json' "
        """-d '{"model": "any", "stream": true, "messages": [{"role": "user", "content": "Review this."}]}'"""
    )

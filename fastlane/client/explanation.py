"""Explain which plays of a client are on, which transport carries its calls, and why anything is off."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Literal

import openai

from ..compat.clients import http_client_of, pool_settings_of, stock_http_client_class, transport_of
from ..decode.probes import unexpected_seams
from ..plays import Play
from ..transport import PoolSettings
from .configuration import OWN_HTTP_CLIENT, Obstacle

Transport = Literal["fastlane", "stock", "caller"]

_HTTP2 = {"prefer": "HTTP/2 if the server speaks it, else HTTP/1.1", "require": "HTTP/2 only", "never": "HTTP/1.1 only"}
_CARRIERS = {"stock": "openai's own HTTP client", "caller": "the http_client that the client was made with"}


@dataclass(frozen=True, slots=True)
class Limitation:
    """Something that is off, why, and what to do about it."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a client does: `print()` shows it, `to_dict()` is for programs."""

    is_enabled: bool
    """False with FASTLANE_DISABLED: the client is openai's own."""
    plays: tuple[str, ...]
    """The plays that are on, as in `record.plays`."""
    transport: Transport
    """What carries the calls: "fastlane", "stock" (openai's own HTTP client) or "caller" (the given `http_client`)."""
    http2: Literal["prefer", "require", "never"] | None
    """The setting of fastlane's transport; None for other transports."""
    proxy: str | None = None
    """The proxy on the way to the base URL, without username and password; None for none, and for other transports."""
    experiment: str | None
    """The name of the experiment that sends a share of the calls through other plays."""
    limitations: tuple[Limitation, ...]
    """What is off, or works less well than it could."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "plays": list(self.plays), "limitations": list(map(asdict, self.limitations))}

    def __str__(self) -> str:
        from .._version import __version__

        how = f"fastlane's, {_HTTP2[self.http2]}" if self.http2 is not None else _CARRIERS[self.transport]
        if self.proxy is not None:
            how += f", through {self.proxy}"
        lines = [
            f"fastlane {__version__} with openai {openai.__version__}: {'on' if self.is_enabled else 'off'}",
            f"transport: {how}",
            *(f"play: {play}" for play in self.plays or ("none",)),
        ]
        if self.experiment is not None:
            lines.append(f"experiment: {self.experiment} sends a share of the calls through other plays")
        lines += [f"limited: {one.what}: {one.why}. {one.remedy}." for one in self.limitations]
        return "\n".join(lines)


def explain(client: Any) -> Explanation:
    """Return the explanation of a client. It contains no key, header or password."""
    client_state = client._fastlane
    if client_state is None:
        own = type(http_client_of(client)) is stock_http_client_class(asynchronous=client._asynchronous)
        disabled = Limitation(
            "all of fastlane",
            "FASTLANE_DISABLED was set when the client was made",
            "Unset it and make the client anew",
        )
        return Explanation(
            is_enabled=False,
            plays=(),
            transport="stock" if own else "caller",
            http2=None,
            experiment=None,
            limitations=(disabled,),
        )
    settings = pool_settings_of(http_client_of(client))
    experiment = client._experiment
    return Explanation(
        is_enabled=True,
        plays=client_state.pipeline.fingerprint,
        # The application may have replaced the client's HTTP client.
        transport="caller" if settings is None and client_state.transport == "fastlane" else client_state.transport,
        http2=None if settings is None else settings.http2,
        proxy=_proxy_of(client, settings),
        experiment=None if experiment is None else experiment.name,
        limitations=(*_of_transport(client), *_of_short_path(client), *_of_extras(client_state.pipeline.plays)),
    )


def _proxy_of(client: Any, settings: PoolSettings | None) -> str | None:
    url = client.base_url
    if settings is None or not url.host:
        return None
    proxy = settings.proxy_for(url.scheme, url.raw_host.decode("ascii"), url.port)
    return None if proxy is None else str(proxy)


def _of_transport(client: Any) -> list[Limitation]:
    obstacle: Obstacle | None = client._obstacle
    if obstacle is None and pool_settings_of(http_client_of(client)) is None:
        obstacle = OWN_HTTP_CLIENT
    if obstacle is not None:
        needing = ", ".join(type(play).__name__ for play in client._fastlane.pipeline.plays if play.needs_transport)
        remedy = obstacle.remedy[:1].upper() + obstacle.remedy[1:]
        return [Limitation(needing or "fastlane's transport", obstacle.why, remedy)]
    if getattr(transport_of(http_client_of(client)), "falls_back", False):
        return [
            Limitation(
                "fastlane's transport",
                "a mock, an instrumentation, trio or patched sockets (gevent, for example) must see every request",
                "Nothing to do: meanwhile connections of the HTTP library carry the calls",
            )
        ]
    return []


def _of_short_path(client: Any) -> list[Limitation]:
    slower = "Nothing to do: results are the same, calls take more CPU time"
    upgrade = "Install the newest fastlane: results are the same until then, and calls take more CPU time"
    return [
        *(Limitation("building requests", why, slower) for why in client._fastlane.requests.why_not(client)),
        *(
            Limitation("calls", f"{seam} is not what this version of fastlane expects", upgrade)
            for seam in unexpected_seams()
        ),
    ]


def _of_extras(plays: tuple[Play, ...]) -> list[Limitation]:
    from ..plays import ContextTrimming  # imported on demand

    if find_spec("tiktoken") is not None or not any(isinstance(play, ContextTrimming) for play in plays):
        return []
    remedy = "Install it with pip install 'fastlane-llm[tokens]'"
    return [Limitation("ContextTrimming", "tiktoken is not installed, so token counts are estimates", remedy)]

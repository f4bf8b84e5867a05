"""Whom the requests go to: the embedded provider behind an emulated wire, or a real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..emulator import RequestLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProvider:
    """A provider that takes requests now."""

    base_url: str
    api_key: str
    model: str
    one_way_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables by which a client's process trusts its certificate."""
    limit_field: str = "max_completion_tokens"
    read_log: Callable[[], tuple[RequestLog, ...]] | None = None
    """The provider's own account of every request; None for a real provider, which gives none."""

    @property
    def embedded(self) -> bool:
        """Whether this is the embedded provider, whose log can be read and whose answers can be ordered."""
        return self.read_log is not None

    @property
    def host(self) -> str:
        """The host and port of the base URL, without a password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The embedded provider, in a process of its own, behind a wire. Raises ConfigurationError."""

    preset: str = "bench"
    round_trip_time_s: float = 0.04
    seed: int = 0
    model: str = "bench"
    """Name of the model in requests; it serves any."""

    def __post_init__(self) -> None:
        from ..emulator import preset
        from ..emulator.wire import Wire

        preset(self.preset)
        Wire(round_trip_time_s=self.round_trip_time_s)

    def describe(self) -> str:
        return f"embedded provider, preset {self.preset!r}, round trip {self.round_trip_time_s * 1e3:g} ms"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        from ..emulator import Emulator, preset
        from ..emulator.wire import Wire

        wire = Wire(round_trip_time_s=self.round_trip_time_s)
        with Emulator(model=preset(self.preset), seed=self.seed, wire=wire) as emulator:
            yield RunningProvider(
                base_url=emulator.base_url,
                api_key="sk-bench",
                model=self.model,
                environment=dict(emulator.environment),
                one_way_s=self.round_trip_time_s / 2,
                read_log=emulator.log,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A provider on the network. Raises ConfigurationError where its key is not in the environment."""

    base_url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    limit_field: str = "max_completion_tokens"
    """Name of the body's field that limits the answer's tokens; older servers know only "max_tokens"."""

    def __post_init__(self) -> None:
        try:
            host = urlsplit(self.base_url).hostname
        except ValueError:
            host = None
        if not self.base_url.startswith(("https://", "http://")) or not host:
            raise ConfigurationError(
                f"the base URL must begin with https:// or http://, got {self.base_url!r}: "
                "an example is https://api.openai.com/v1"
            )
        if not os.environ.get(self.api_key_env):
            raise ConfigurationError(
                f"the environment variable {self.api_key_env} is not set: put the provider's key into it, or name "
                "another variable with --api-key-env (a server that asks for no key takes any text)"
            )

    def describe(self) -> str:
        limit = "" if self.limit_field == "max_completion_tokens" else f", answers limited by {self.limit_field!r}"
        # A password in front of the host and a key in the query belong in no report.
        url = urlsplit(self.base_url)
        shown = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return f"{shown}, model {self.model!r}{limit}"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        key = os.environ[self.api_key_env]
        yield RunningProvider(base_url=self.base_url, api_key=key, model=self.model, limit_field=self.limit_field)


Provider = Embedded | Real

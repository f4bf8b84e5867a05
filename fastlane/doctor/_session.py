"""What the checks share: the settings, and what has been found out so far."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ._wire import Steps
from .target import Target

if TYPE_CHECKING:
    import httpx2

    from ..providers import ProviderFacts
    from ._asking import ModelCalls
    from ._forms import Outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """What is to be looked at, and for how long. Raises ConfigurationError for a setting that cannot work."""

    target: Target
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    key_source: str = "OPENAI_API_KEY"
    """The environment variable that `key` is from."""
    quick: bool = False
    idle_s: float = 20.0
    """The longest idle spell that is tried; 0 for none."""
    timeout_s: float = 10.0
    """Longest wait for one answer that needs no model."""
    probe_timeout_s: float = 3.0
    """Longest wait for the answer to a body that nobody can answer: a server that hangs on one says so by that."""
    answer_timeout_s: float = 60.0
    """Longest wait for one answer of a model."""
    cache_pause_s: float = 1.0
    """Between the two equal requests that look for a prompt cache: some providers write theirs after they answered."""

    def __post_init__(self) -> None:
        if not 0 <= self.idle_s <= 3_600:
            raise ConfigurationError(f"--idle-s must be a number of seconds from 0 to 3600, got {self.idle_s!r}")
        for name in ("timeout_s", "probe_timeout_s", "answer_timeout_s"):
            if not 0 < getattr(self, name) <= 3_600:
                raise ConfigurationError(f"{name} must be above 0 and at most 3600, got {getattr(self, name)!r}")

    @property
    def rounds(self) -> int:
        """How many connections are opened one after the other for the times of a step."""
        return 1 if self.quick else 3

    @property
    def headers(self) -> dict[str, str]:
        """What a request by hand carries."""
        own = {"Host": self.target.authority, "Accept": "application/json", "User-Agent": "fastlane doctor"}
        return own if self.key is None else {**own, "Authorization": f"Bearer {self.key}"}


@dataclass(kw_only=True)
class DoctorSession:
    """What has been found out so far. Each check adds to it; a check that runs beside others adds nothing."""

    settings: DoctorSettings
    steps: Steps = field(default_factory=Steps)
    is_reached: bool = False
    """The server has answered over HTTP, whatever it said."""
    known: ProviderFacts | None = None
    """What is written down of this provider."""
    models: tuple[str, ...] | None = None
    """The models that the provider lists; None where it does not."""
    model: str | None = None
    """The model that is asked."""
    key_refused: bool = False
    needs_key: bool = False
    """The provider did not even name its models without a key."""
    free_forms: dict[str, Outcomes] = field(default_factory=dict)
    """What was found out of the forms of a body without spending a token, by endpoint."""
    count_paths: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where answers of the model have their token counts, by endpoint."""
    last_chunk: Mapping[str, Any] | None = field(default=None, repr=False)
    """The last event of a stream that brought token counts."""
    asking: ModelCalls | None = None
    headers_seen: dict[str, str] = field(default_factory=dict, repr=False)
    """Headers of the answers so far."""
    plain_answer: Mapping[str, Any] | None = field(default=None, repr=False)
    """The first answer of the model, whole."""
    http: httpx2.Client | None = field(default=None, repr=False)

    @property
    def target(self) -> Target:
        """The URL that is looked at."""
        return self.settings.target

    def close(self) -> None:
        """Let go of every connection."""
        if self.asking is not None:
            self.asking.close()
        if self.http is not None:
            self.http.close()


def has_proxy(target: Target) -> bool:
    """Whether the system names a proxy for this URL, which then stands between here and the provider."""
    proxies = urllib.request.getproxies()
    if not (target.scheme in proxies or "all" in proxies):
        return False
    return not urllib.request.proxy_bypass(target.host)

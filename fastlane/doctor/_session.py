"""What the checks share: the URL, the settings, the HTTP client, and what is known so far."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from .._clock import now_ns
from ..errors import ConfigurationError
from ..providers.origins import Origin, origin_of
from ..transport import PHASES, Phases

if TYPE_CHECKING:
    from ..providers import ProviderFacts
    from ..records.attempts import Form

CHAT = "/chat/completions"
_MEANINGS = {
    401: "the key was not accepted",
    402: "there is no credit left",
    403: "the key may not do this",
    404: "there is no such model or path",
    429: "too many requests, or no quota",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Origin):
    """A provider's base URL, such as https://api.example.com/v1, without a slash at its end."""

    base_url: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"


def target_of(url: str) -> Target:
    """Take a base URL apart. Raises ConfigurationError for one that cannot work."""
    expected = "URL must be the base URL of an API, such as https://api.example.com/v1"
    origin = origin_of(url)
    if origin is None:
        # Neither a user nor a query is shown.
        raise ConfigurationError(f"{expected}, got {url.rpartition('@')[2].partition('?')[0]!r:.80}")
    parts = urlsplit(url.strip())
    if parts.username or parts.password:
        raise ConfigurationError("URL must not hold a name or a password: put the key into --api-key-env's variable")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{expected}, without what follows a '?' or '#': leave that out")
    path = parts.path.rstrip("/")
    if wrong := next((each for each in (CHAT, "/completions", "/responses", "/models") if path.endswith(each)), None):
        raise ConfigurationError(f"{expected}, without {wrong!r} at its end: leave that out")
    base_url = parts._replace(netloc=parts.netloc.lower(), path=path).geturl()
    return Target(scheme=origin.scheme, host=origin.host, port=origin.port, base_url=base_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """What to examine, and for how long. Raises ConfigurationError for a setting that cannot work."""

    target: Target
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    key_source: str = "OPENAI_API_KEY"
    quick: bool = False
    idle_s: float = 20.0
    timeout_s: float = 10.0
    """Longest wait for one response that needs no model."""
    answer_timeout_s: float = 60.0
    """Longest wait for one answer of a model."""
    cache_pause_s: float = 1.0
    """Between the two equal requests that look for a prompt cache: some providers write theirs after they answered."""

    def __post_init__(self) -> None:
        if not 0 <= self.idle_s <= 3_600:
            raise ConfigurationError(f"--idle-s must be a number of seconds from 0 to 3600, got {self.idle_s!r}")
        if not 0 < self.answer_timeout_s <= 3_600:
            raise ConfigurationError(f"--timeout-s must be above 0 and at most 3600, got {self.answer_timeout_s!r}")

    @property
    def headers(self) -> dict[str, str]:
        own = {"Accept": "application/json", "User-Agent": "fastlane doctor"}
        return own if self.key is None else {**own, "Authorization": f"Bearer {self.key}"}


@dataclass
class StatusError(Exception):
    status: int


class Answer(NamedTuple):
    """A response that came whole. `data` is the JSON object of its body, empty for anything else."""

    status: int
    data: Mapping[str, Any]
    taken_ns: int
    headers: Mapping[str, str]


@dataclass(kw_only=True)
class DoctorSession:
    """What is known so far. Each check adds to it."""

    settings: DoctorSettings
    http: httpx2.Client = field(repr=False)
    is_reached: bool = False
    """The server has answered over HTTP, whatever the status."""
    known: ProviderFacts | None = None
    models: tuple[str, ...] | None = None
    """The models that the provider lists; None if it does not."""
    model: str | None = None
    needs_key: bool = False
    """The provider answered 401 or 403 when its models were listed."""
    limit_field: str = "max_completion_tokens"
    least_tokens: int = 1
    """The smallest limit of output tokens that the model takes."""
    count_paths: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where responses have their token counts, by endpoint."""
    first_headers: Mapping[str, str] | None = None
    """The headers of the model's first answer; None until it has answered."""

    def list_models(self, client: httpx2.Client | None = None, phases: Phases | None = None) -> httpx2.Response:
        url, headers = f"{self.settings.target.base_url}/models", self.settings.headers
        return (client or self.http).get(url, headers=headers, extensions={PHASES: phases} if phases else None)

    def body(self, prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
        """Return a body of a chat call with a limit of so many tokens, or the least that the model takes."""
        limit = {self.limit_field: max(tokens, self.least_tokens)}
        return {"model": self.model, "messages": [{"role": "user", "content": prompt}], **limit, **fields}

    @property
    def msgpack_type(self) -> str:
        fact = self.known.media_types.get("msgpack") if self.known is not None else None
        return (fact.value if fact is not None else None) or "application/vnd.msgpack"

    def request(self, body: Mapping[str, Any], endpoint: str = CHAT, form: Form = "json") -> httpx2.Request:
        """Return a call of an endpoint whose body is written in a form."""
        from ..plays.request_encoding.bodies import Writing, in_form

        url = f"{self.settings.target.base_url}{endpoint}"
        timeout = httpx2.Timeout(self.settings.timeout_s, read=self.settings.answer_timeout_s).as_dict()
        request = httpx2.Request("POST", url, headers=self.settings.headers, extensions={"timeout": timeout})
        encoded: httpx2.Request = in_form(
            request, json.dumps(body).encode(), form, Writing(msgpack_type=self.msgpack_type)
        )
        return encoded

    def ask(self, body: Mapping[str, Any], endpoint: str = CHAT, form: Form = "json") -> Answer:
        request = self.request(body, endpoint, form)
        started = now_ns()
        response = self.http.send(request)
        return Answer(response.status_code, json_object(response.content), now_ns() - started, response.headers)


def json_object(body: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def printable(text: str, most: int = 60) -> str:
    """Return a server's text as a terminal can show it."""
    return "".join(letter for letter in text if letter.isprintable())[:most]


def has_proxy(target: Target) -> bool:
    is_named = not {target.scheme, "all"}.isdisjoint(urllib.request.getproxies())
    return is_named and not urllib.request.proxy_bypass(target.host)


def of_status(status: int) -> str:
    meaning = "the server has a fault of its own" if status >= 500 else _MEANINGS.get(status)
    return f"{status}: {meaning or ('the request was refused' if status in (400, 422) else 'refused')}"


def problem_of(status: int) -> str:
    """Return the name in `PROBLEMS` of a status."""
    return "5xx" if status >= 500 else str(status) if status in _MEANINGS else "refused"

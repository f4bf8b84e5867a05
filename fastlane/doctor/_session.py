"""What the checks share: settings, the HTTP client, what is known so far, and how a check runs."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from .._clock import now_ns
from ..errors import ConfigurationError
from ._findings import ProviderFinding, found
from .target import Target

if TYPE_CHECKING:
    from ..providers import ProviderFacts
    from ..records.attempts import Form

CHAT = "/chat/completions"
_MEANINGS = {
    400: "the request was refused",
    401: "the key was not accepted",
    402: "there is no credit left",
    403: "the key may not do this",
    404: "there is no such model or path",
    422: "the request was refused",
    429: "too many requests, or no quota",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """What to examine, and for how long. Raises ConfigurationError for a setting that cannot work."""

    target: Target
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    key_source: str = "OPENAI_API_KEY"
    """The environment variable that `key` is from."""
    quick: bool = False
    idle_s: float = 20.0
    """The longest idle time of a connection to try; 0 for none."""
    timeout_s: float = 10.0
    """Longest wait for one response that needs no model."""
    answer_timeout_s: float = 60.0
    """Longest wait for one answer of a model."""
    cache_pause_s: float = 1.0
    """Between the two equal requests that look for a prompt cache: some providers write theirs after they answered."""

    def __post_init__(self) -> None:
        if not 0 <= self.idle_s <= 3_600:
            raise ConfigurationError(f"--idle-s must be a number of seconds from 0 to 3600, got {self.idle_s!r}")
        for name in ("timeout_s", "answer_timeout_s"):
            if not 0 < getattr(self, name) <= 3_600:
                raise ConfigurationError(f"{name} must be above 0 and at most 3600, got {getattr(self, name)!r}")

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        own = {"Accept": "application/json", "User-Agent": "fastlane doctor"}
        return own if self.key is None else {**own, "Authorization": f"Bearer {self.key}"}


class StatusError(Exception):
    """The provider answered with a status that is not 200."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Answer(NamedTuple):
    """A response that came whole."""

    status: int
    data: Mapping[str, Any]
    """The JSON object of its body; empty for anything else."""
    taken_ns: int


@dataclass(kw_only=True)
class DoctorSession:
    """What is known so far. Each check adds to it; a check that runs beside others adds nothing."""

    settings: DoctorSettings
    http: httpx2.Client = field(repr=False)
    is_reached: bool = False
    """The server has answered over HTTP, whatever the status."""
    known: ProviderFacts | None = None
    """The facts on record of this provider."""
    models: tuple[str, ...] | None = None
    """The models that the provider lists; None where it does not."""
    model: str | None = None
    """The model that calls name."""
    needs_key: bool = False
    """The provider answered 401 or 403 when its models were listed."""
    limit_field: str = "max_completion_tokens"
    least_tokens: int = 1
    """The smallest limit of output tokens that the model takes."""
    count_paths: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where responses have their token counts, by endpoint."""
    has_answered: bool = False
    """The model has answered the first call."""

    @property
    def target(self) -> Target:
        """The URL that is examined."""
        return self.settings.target

    @property
    def models_url(self) -> str:
        """What is asked for where no model is needed: the list of models."""
        return f"{self.target.base_url}/models"

    def body(self, prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
        """Return a body of a chat call with a limit of so many tokens, or the least that the model takes."""
        limit = {self.limit_field: max(tokens, self.least_tokens)}
        return {"model": self.model, "messages": [{"role": "user", "content": prompt}], **limit, **fields}

    def request(self, body: Mapping[str, Any], endpoint: str = CHAT, form: Form = "json") -> httpx2.Request:
        """Return a call of an endpoint whose body is written in a form."""
        from ..plays.request_encoding.bodies import in_form

        url = f"{self.target.base_url}{endpoint}"
        timeout = httpx2.Timeout(self.settings.timeout_s, read=self.settings.answer_timeout_s).as_dict()
        request = httpx2.Request("POST", url, headers=self.settings.headers, extensions={"timeout": timeout})
        encoded: httpx2.Request = in_form(request, json.dumps(body).encode(), form, self.writing)
        return encoded

    @property
    def writing(self) -> Any:
        """How bodies are written for this provider."""
        from ..plays.request_encoding.bodies import Writing

        media_type = self.known.media_types.get("msgpack") if self.known is not None else None
        value = media_type.value if media_type is not None else None
        return Writing(msgpack_type=value or "application/vnd.msgpack")

    def ask(self, body: Mapping[str, Any], endpoint: str = CHAT, form: Form = "json") -> Answer:
        """Send a call and read the whole response. Raises httpx2.HTTPError."""
        request = self.request(body, endpoint, form)
        started = now_ns()
        response = self.http.send(request)
        taken_ns = now_ns() - started
        return Answer(response.status_code, json_object(response.content), taken_ns)


def json_object(body: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def has_proxy(target: Target) -> bool:
    """Return whether the system names a proxy for this URL."""
    proxies = urllib.request.getproxies()
    if not (target.scheme in proxies or "all" in proxies):
        return False
    return not urllib.request.proxy_bypass(target.host)


def of_status(status: int) -> str:
    """Return a status in words, with its number."""
    meaning = "the server has a fault of its own" if status >= 500 else _MEANINGS.get(status, "refused")
    return f"{status}: {meaning}"


def problem_of(status: int) -> str:
    """Return the name in `PROBLEMS` of a status."""
    return "5xx" if status >= 500 else str(status) if status in (401, 402, 403, 404, 429) else "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The result of all checks."""

    settings: DoctorSettings
    findings: tuple[ProviderFinding, ...]
    is_reached: bool
    """Whether the provider answered over HTTP."""
    model: str | None
    """The model that was called, or would have been."""
    interrupted: bool = False


class Cost(NamedTuple):
    """What a check takes of the provider, as estimated before."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(*(one + two for one, two in zip(self, other, strict=True)))


class ProviderCheck(NamedTuple):
    """One check: its row in the report, what it yields, and the longest time it may take, in seconds."""

    name: str
    look: Callable[[DoctorSession], Iterator[ProviderFinding]]
    timeout_s: float
    cost: Cost = Cost()


class RunningCheck:
    """A check on its own thread, which is abandoned when its time is up. An error ends this check alone."""

    def __init__(self, check: ProviderCheck, session: DoctorSession) -> None:
        self._check = check
        self._session = session
        self._found: list[ProviderFinding] = []
        self._over = threading.Event()
        self._started_ns = now_ns()
        threading.Thread(target=self._run, name=f"doctor: {check.name}", daemon=True).start()

    def _run(self) -> None:
        try:
            for finding in self._check.look(self._session):
                self._found.append(finding)
        except StatusError as error:
            problem, source = problem_of(error.status), self._session.settings.key_source
            self._found.append(found(self._check.name, of_status(error.status), "error", problem, key_source=source))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one check, the others go on
            cause = f" <- {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
            self._found.append(found(self._check.name, f"{type(error).__name__}{cause}", "error"))
        finally:
            self._over.set()

    def finish(self) -> tuple[ProviderFinding, ...]:
        """Wait until it is over or its time is up, and return what it found. Ctrl-C gets through."""
        left_s = self._check.timeout_s - (now_ns() - self._started_ns) / 1e9
        over = self._over.wait(max(0.0, left_s))
        late = found(self._check.name, f"not finished within {self._check.timeout_s:g} s", "late")
        return tuple(self._found) if over else (*self._found, late)

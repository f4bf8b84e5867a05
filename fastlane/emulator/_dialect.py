"""What an emulated server says of itself and of its work beyond what every answer must say."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError

TIMINGS: Mapping[str, str] = {
    "time_info": "`time_info` of the answer or its last chunk, as Cerebras has it",
    "usage": "`queue_time`, `prompt_time`, `completion_time` and `total_time` of the usage, as Groq has them",
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
# What frames an answer, and what the log is found again by.
_RESERVED = frozenset({"connection", "content-length", "content-type", "transfer-encoding", "x-request-id"})
_TIER_PATH = re.compile(r"(usage\.)?[A-Za-z_]\w*")
_USAGE_PATH = re.compile(r"usage(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one server's answers differ from another's. Raises ConfigurationError for a setting that cannot work.

    `headers` go out with every answer, as a mapping or as pairs; an empty value leaves out one that the emulator
    would send by itself (`openai-processing-ms`, `cache-control`).
    """

    headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    owned_by: str = "emulator"
    """Of every model that `GET /models` lists."""
    says_accepted: bool = False
    """Whether a 415 names what is accepted: `accept-encoding` (RFC 9110, 15.5.16, and RFC 7694) or `accept`."""
    timing: tuple[str, ...] = ()
    """Where the server tells its own times, in seconds; see `TIMINGS`. None of them by default."""
    cached_tokens_path: str = "standard"
    """Where the usage counts cached tokens: `standard` as OpenAI has it, `none`, or a path that begins with `usage.`"""
    service_tier_path: str = "standard"
    """Where an answer names the tier that served it: `standard` as OpenAI has it, `none`, a field, or `usage.` and one.
    Of streams, in another place than the standard one, the last chunk."""
    structured_outputs: bool = True
    """False: `response_format` and `text.format` are taken and ignored, and the answer is prose."""
    refused_fields: tuple[str, ...] = ()
    """Fields of a body with which a request is refused (400), as servers do that do not know a field."""

    def __post_init__(self) -> None:
        pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        object.__setattr__(self, "headers", tuple((name.lower(), value) for name, value in pairs))
        for name, value in self._headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ConfigurationError(f"a header's name must be letters, digits and dashes, got {name!r}")
            if name in _RESERVED:
                raise ConfigurationError(f"header {name!r} is the emulator's own: leave it out")
            if not _HEADER_VALUE.fullmatch(value):
                raise ConfigurationError(f"header {name!r} must have a value of visible ASCII, got {value!r}")
        object.__setattr__(self, "timing", tuple(self.timing))
        object.__setattr__(self, "refused_fields", tuple(self.refused_fields))
        for kind in self.timing:
            if kind not in TIMINGS:
                raise ConfigurationError(f"timing must be of {', '.join(TIMINGS)}, got {kind!r}")
        path = self.cached_tokens_path
        if path not in ("standard", "none") and not _USAGE_PATH.fullmatch(path):
            raise ConfigurationError(
                f"cached_tokens_path must be 'standard', 'none' or a path like 'usage.prompt_cache_hit_tokens', "
                f"got {path!r}"
            )
        if not _TIER_PATH.fullmatch(self.service_tier_path):
            raise ConfigurationError(
                "service_tier_path must be 'standard', 'none', a field such as 'service_tier_used', or 'usage.' and a "
                f"field, got {self.service_tier_path!r}"
            )

    @property
    def _headers(self) -> tuple[tuple[str, str], ...]:
        assert isinstance(self.headers, tuple)
        return self.headers

    def spoken(self, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return an answer's headers: its own, where this dialect has none of that name, then this dialect's."""
        replaced = {name for name, _ in self._headers}
        return [
            *(header for header in own if header[0] not in replaced),
            *(header for header in self._headers if header[1]),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Dialect:
        """Rebuild a dialect that `to_json` made."""
        headers = tuple((name, value) for name, value in settings["headers"])
        return cls(**{**settings, "headers": headers, "timing": tuple(settings["timing"])})

"""How the provider keeps files and works batches off, as settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError

MAXIMUM_FILE_BYTES = 512 * 1_048_576
"""Of one upload: OpenAI takes files of up to 512 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Files and batches of one emulated provider. Raises ConfigurationError for a setting that cannot work.

    By default a batch is done as fast as this machine can. Times are in seconds, shares from 0 to 1; which lines a
    share concerns follows from seed, batch and `custom_id`, so that a line that failed has another chance in another
    batch.
    """

    validation_s: float = 0.0
    """How long a batch stays `validating`, at least."""
    lines_per_s: float | None = None
    """How many lines of one batch are done in a second; None: as many as can be."""
    duration_s: float | None = None
    """How long the lines of one batch take together, however many they are; instead of `lines_per_s`."""
    finalizing_s: float = 0.0
    """How long it stays `finalizing`."""
    cancelling_s: float = 0.0
    """How long it stays `cancelling`; OpenAI says up to 10 minutes."""
    expires_after_s: float = 86_400.0
    """The completion window as it is kept; requests name it `24h` all the same."""
    server_error_share: float = 0.0
    """Lines that fail with 500."""
    rate_limited_share: float = 0.0
    """Lines that fail with 429."""
    timeout_share: float = 0.0
    """Lines without a response, whose error has the code `request_timeout`."""
    missing_share: float = 0.0
    """Lines that are done, and stand in neither file."""
    maximum_requests: int = 50_000
    maximum_bytes: int = 209_715_200
    """Of a batch's input file: OpenAI's 200 MB, in the bytes that its error message tells."""
    maximum_in_progress: int = 100
    """Batches that are worked off at once; more wait in `validating`."""
    enqueued_tokens: int | None = None
    """The most prompt tokens of all unfinished batches of one model; a batch past it fails."""
    file_listing_delay_s: float = 0.0
    """After how long an upload shows in the list of files, which is eventually consistent."""
    batch_listing_delay_s: float = 0.0
    """The same of batches."""
    missing_file_fails_late: bool = False
    """A batch of a file that there is not is created, and fails; else it is refused with 400."""
    storage_bytes: int = 2 * 1_073_741_824
    """Of all files together, in memory; an upload past it is refused."""

    def __post_init__(self) -> None:
        for name in ("validation_s", "finalizing_s", "cancelling_s", "file_listing_delay_s", "batch_listing_delay_s"):
            self._number(name, 0)
        self._number("expires_after_s", 0)
        for name in ("lines_per_s", "duration_s", "enqueued_tokens"):
            if getattr(self, name) is not None:
                self._number(name, 0)
        if self.lines_per_s is not None and (self.duration_s is not None or self.lines_per_s == 0):
            raise ConfigurationError(
                f"lines_per_s must be above 0 and without duration_s, got {self.lines_per_s} and {self.duration_s}: "
                "give one of them"
            )
        shares = ("server_error_share", "rate_limited_share", "timeout_share", "missing_share")
        for name in shares:
            self._number(name, 0)
        if sum(getattr(self, name) for name in shares) > 1:
            raise ConfigurationError(f"{', '.join(shares)} must not be above 1 together: they are shares of the lines")
        for name in ("maximum_requests", "maximum_bytes", "maximum_in_progress", "storage_bytes"):
            self._number(name, 1)

    def _number(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise ConfigurationError(f"{name} must be a number from {least}, got {value!r}")

    def due(self, seconds: float, lines: int) -> int:
        """Return how many of a batch's lines are due this many seconds after it has begun."""
        rate = self._rate(lines)
        return lines if rate is None else min(lines, int(seconds * rate))

    def next_due_s(self, done: int, lines: int) -> float:
        """Return how many seconds after it has begun another line is due."""
        rate = self._rate(lines)
        return 0.0 if rate is None else (done + 1) / rate

    def _rate(self, lines: int) -> float | None:
        return lines / self.duration_s if self.duration_s else self.lines_per_s

    def changed(self, settings: Mapping[str, Any]) -> BatchSettings:
        """Return these settings with others in some places. Raises ConfigurationError."""
        known = {field.name for field in dataclasses.fields(self)}
        for name in settings:
            if name not in known:
                raise ConfigurationError(
                    f"unknown setting {name!r} of batches: the known ones are {', '.join(sorted(known))}"
                )
        return dataclasses.replace(self, **settings)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> BatchSettings:
        """Rebuild settings that `to_json` made. Raises ConfigurationError."""
        return cls().changed(settings)

    @classmethod
    def parse(cls, text: str) -> BatchSettings:
        """Read `setting=value[;setting=value…]`, e.g. `lines_per_s=500;server_error_share=0.1`."""
        settings: dict[str, Any] = {}
        for part in filter(None, (piece.strip() for piece in text.split(";"))):
            name, _, given = (piece.strip() for piece in part.partition("="))
            settings[name] = _value(name, given)
        return cls().changed(settings)


def _value(name: str, text: str) -> object:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise ConfigurationError(f"{name} of batches must be a number, true, false or none, got {text!r}")

"""Requests that fail alike: when a run ends because of them, and what to change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from .recorded import Sample

FAILED_ALIKE: Final = "requests failed alike"
"""How such a run has ended."""
MOST_ALIKE: Final = 20
"""Failures with the same error that end a run, if more than half of all requests failed with it."""
# "This model's maximum context length is 4096 tokens", "context window of 8192 tokens", "(4096 > 2048 context size)".
_CONTEXT: Final = re.compile(r"context (?:length|window|size)\D{0,30}(\d{3,})", re.IGNORECASE)
_REMEDIES: Final = {
    "401": "the key in --api-key-env is not accepted: set the provider's own",
    "403": "the key in --api-key-env is not allowed to use the model: name another --model or key",
    "404": "name a --model that the provider has, and a --base-url that ends as its documentation says, often in /v1",
    "429": "the provider's limits are lower than this load: use fewer --users, or a --rate",
}


class Failures:
    """Counts the failures of a run."""

    def __init__(self) -> None:
        self._requests = 0
        self._errors: Counter[str] = Counter()

    def add(self, sample: Sample) -> None:
        """Count a request that counts."""
        if sample.part == "measured":
            self._requests += 1
            if sample.error is not None:
                self._errors[sample.error] += 1

    @property
    def count(self) -> int:
        """Requests that counted and failed."""
        return self._errors.total()

    @property
    def are_alike(self) -> bool:
        """Whether the run is to end, because it would only show how requests fail."""
        most = max(self._errors.values(), default=0)
        return most >= MOST_ALIKE and 2 * most > self._requests


def remedy(samples: Iterable[Sample]) -> str:
    """Return what failed most often, and what to change."""
    found = Counter((sample.error, sample.error_message or "") for sample in samples if sample.error is not None)
    ((error, message), count), *_ = found.most_common(1)
    said = f"{count} requests failed alike, and the run was ended: {error}: {message}"
    context = _CONTEXT.search(message)
    if context is not None or "context_length_exceeded" in message:
        fits = f" {int(context[1]) * 3 // 4}" if context is not None else " N"
        return f"{said}. The model's context is smaller than the workload: give --max-input-tokens{fits}"
    status = (error or "").rpartition(" ")[2]
    return f"{said}. {_REMEDIES[status].capitalize()}" if status in _REMEDIES else said

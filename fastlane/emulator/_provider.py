"""The emulated provider's state: its model, its memory, its queue and its luck."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from fastlane._clock import now_ns
from fastlane.emulator import _tokens
from fastlane.emulator._bodies import ALL_ENCODINGS, checked_encodings, checked_refusal
from fastlane.emulator._comparisons import Comparisons
from fastlane.emulator._errors import ApiError
from fastlane.emulator._faults import Fault, FaultRules
from fastlane.emulator._intake import Intake
from fastlane.emulator._log import RequestRecords
from fastlane.emulator._overrides import Overrides
from fastlane.emulator._prefix_cache import ROUTED_CHARACTERS, PrefixCache
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator.settings import Dialect, ProviderModel, ServiceTier

_NS = 1_000_000_000
# A client may send any number of tags and draws.
_MOST_ASKED = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """The draws of one request: equal for the same seed, sequence number and prompt."""

    prefill: float
    pace: float
    late: bool
    jitter: Random
    random: Random


class Recalled(NamedTuple):
    """What one request found in the cache, and left there."""

    cached_tokens: int
    written_tokens: int
    machine: int | None


class Provider:
    """One provider. All of its state changes happen on one event loop."""

    def __init__(
        self,
        model: ProviderModel,
        *,
        seed: int = 0,
        faults: Iterable[Fault] = (),
        accepted_encodings: Iterable[str] = ALL_ENCODINGS,
        encoding_refusal_status: int = 415,
        dialect: Dialect | None = None,
    ) -> None:
        self.model = model
        self.dialect = dialect or Dialect()
        self.seed = seed
        self.accepted_encodings = checked_encodings(accepted_encodings)
        self.encoding_refusal_status = checked_refusal(encoding_refusal_status)
        self.ledger = RequestRecords()
        self.faults = FaultRules(faults)
        self.fault_random = Random(f"{seed}:faults")
        self.intake = Intake(model, seed=seed)
        self.cache = PrefixCache(
            block_tokens=model.cache_block_tokens,
            minimum_tokens=model.cache_minimum_tokens,
            expiry_ns=round(model.cache_expiry_s * _NS),
            machines=model.cache_machines,
            per_minute=model.cache_requests_per_key_per_minute,
        )
        self.comparisons = Comparisons()
        self._asked: dict[tuple[str | None, int], int] = {}

    def change(self, settings: Mapping[str, Any]) -> None:
        """Serve with other settings from now on. Raises ConfigurationError."""
        self.model = self.model.changed(settings)
        self.intake.change(self.model)

    def luck(self, number: int, prompt: GenerationRequest, overrides: Overrides) -> Luck:
        """Draw for one request. Requests with equal `x-emulator-draw` draw alike, whatever they ask."""
        if overrides.draw is None:
            drawn_by = f"time:{number}:{_tokens.fingerprint(prompt.text)}"
        else:
            drawn_by = f"draw:{overrides.draw}"
        random = Random(f"{self.seed}:{drawn_by}")
        prefill, pace = random.random(), random.random()
        # Drawn apart, so that all else is the same with and without late ones. Who asks for a time gets it.
        share = self.model.late_share if overrides.prefill_ms is None else 0.0
        late = share > 0 and Random(f"{self.seed}:late:{self._asked_before(overrides)}:{drawn_by}").random() < share
        return Luck(prefill=prefill, pace=pace, late=late, jitter=Random(random.random()), random=random)

    def _asked_before(self, overrides: Overrides) -> int:
        """How many requests with this tag have drawn by this number: a second attempt has another chance."""
        if overrides.draw is None:
            return 0
        key = (overrides.tag, overrides.draw)
        before = self._asked.pop(key, 0)
        self._asked[key] = before + 1
        if len(self._asked) > _MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        return before

    def check(self, prompt: GenerationRequest, prompt_tokens: int) -> None:
        """Raise ApiError for a model that is not served or a prompt that is too long."""
        model = self.model
        if model.models and prompt.model not in model.models:
            raise ApiError(
                404,
                f"The model `{prompt.model}` does not exist or you do not have access to it.",
                code="model_not_found",
            )
        if prompt_tokens > model.context_window_tokens:
            raise ApiError(
                400,
                f"This model's maximum context length is {model.context_window_tokens} tokens. However, your messages "
                f"resulted in {prompt_tokens} tokens. Please reduce the length of the messages.",
                param="messages",
                code="context_length_exceeded",
            )

    def recall(self, prompt: GenerationRequest, luck: Luck, tier: str) -> Recalled:
        """Look for the prompt in the cache, which holds it from now on."""
        if not self.model.prompt_cache:
            return Recalled(0, 0, None)
        digests = _tokens.prefix_digests(prompt.text, block_tokens=self.model.cache_block_tokens)
        now = now_ns()
        machine = self.cache.machine(prompt.cache_key, luck.random, prefix=prompt.text[:ROUTED_CHARACTERS], now=now)
        lane = (prompt.model, tier, *prompt.cache_lane)
        cached = self.cache.cached_tokens(machine, lane, digests, now)
        self.cache.remember(machine, lane, digests, now, at_least_ns=round(prompt.cache_at_least_s * _NS))
        kept = len(digests) * self.model.cache_block_tokens
        written = kept - cached if kept >= self.model.cache_minimum_tokens else 0
        return Recalled(cached, written, machine)

    def prefill_ns(self, *, uncached_tokens: int, luck: Luck, tier: ServiceTier, overrides: Overrides) -> int:
        """Return the nanoseconds from leaving the queue to the first token."""
        if overrides.prefill_ms is not None:
            return round(overrides.prefill_ms * 1e6)
        seconds = self.model.prefill_s(uncached_tokens=uncached_tokens, luck=luck.prefill, tier=tier)
        return round(seconds * (self.model.late_factor if luck.late else 1) * _NS)

    def gaps_ns(self, *, luck: Luck, tier: ServiceTier, overrides: Overrides) -> Iterator[int]:
        """Yield the nanoseconds between a token and the next, for ever."""
        if overrides.token_ms is not None:
            mean = overrides.token_ms * 1e6
            jitter = 0.0
        else:
            mean = self.model.mean_gap_s(luck=luck.pace, tier=tier) * _NS
            jitter = self.model.inter_token_jitter
        while True:
            yield round(mean * (1 + jitter * (2 * luck.jitter.random() - 1))) if jitter else round(mean)

"""Rate limits at work: what each API key has taken of each model, and the answer to one that is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import NamedTuple

from fastlane.emulator._errors import ApiError
from fastlane.emulator._limit_headers import LimitState, duration, write_headers
from fastlane.emulator._meters import Meter, meter
from fastlane.emulator.settings import PERIODS_S, UNITS, KeyRateLimits

_NS = 1_000_000_000
_SHORT = {
    "requests/minute": "requests per min (RPM)",
    "tokens/minute": "tokens per min (TPM)",
    "requests/hour": "requests per hour (RPH)",
    "tokens/hour": "tokens per hour (TPH)",
    "requests/day": "requests per day (RPD)",
    "tokens/day": "tokens per day (TPD)",
}
# A client may come with any number of keys and models.
_MOST_ACCOUNTS = 65_536
_SECRET = token_bytes(16)

Headers = tuple[tuple[str, str], ...]


def account_of(headers: Mapping[str, str]) -> bytes:
    """Return a digest of the request's key, which cannot be had back from it."""
    key = headers.get("authorization") or headers.get("api-key") or ""
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8, key=_SECRET).digest()


class LimitExceeded(ApiError):  # noqa: N818  (an answer, as its base is)
    """A request that was refused for load; `why` is what the record says."""

    def __init__(
        self, why: str, status: int, message: str, *, type: str, code: str | None, headers: Headers = ()
    ) -> None:
        super().__init__(status, message, type=type, code=code, headers=headers)
        self.why = why


class ChargedTokens(NamedTuple):
    """What one request took."""

    tokens: int
    headers: Headers
    remaining_requests: float | None
    remaining_tokens: float | None


NOTHING_SPENT = ChargedTokens(0, (), None, None)


class Limiter:
    """One set of limits, for every key and model that it holds for."""

    def __init__(self, limits: KeyRateLimits) -> None:
        self.limits = limits
        self._specs = limits.header_specs()
        self._amounts = {
            f"{unit}/{period}": amount
            for period in PERIODS_S
            for unit in UNITS
            if (amount := getattr(limits, f"{unit}_per_{period}")) is not None
        }
        self._no_waits = dict.fromkeys(self._amounts, 0)
        self._meters: dict[tuple[bytes, str], dict[str, Meter]] = {}

    def _of(self, account: bytes, model: str, now: int) -> dict[str, Meter]:
        key = (account if self.limits.per_key else b"", model)
        meters = self._meters.get(key)
        if meters is None:
            if len(self._meters) >= _MOST_ACCOUNTS:
                del self._meters[next(iter(self._meters))]
            meters = self._meters[key] = {name: self._meter(name, now) for name in self._amounts}
        return meters

    def _meter(self, name: str, now: int) -> Meter:
        limits, period = self.limits, name.partition("/")[2]
        kind = "bucket" if limits.window == "quantized" and period != "minute" else limits.window
        return meter(
            kind,
            self._amounts[name],
            PERIODS_S[period] * _NS,
            burst=limits.burst,
            quantum_ns=round(limits.quantum_s * _NS),
            now=now,
        )

    def spend(self, now: int, account: bytes, model: str, tokens: int, *, as_if: str | None = None) -> ChargedTokens:
        """Count a request that comes, of so many tokens. Raises LimitExceeded where it is over a limit.

        `as_if` (`requests`, `tokens` or `quota`) refuses it as if it were.
        """
        if self.limits.quota_spent or as_if == "quota":
            raise LimitExceeded(
                "quota",
                429,
                "You exceeded your current quota, please check your plan and billing details.",
                type="insufficient_quota",
                code="insufficient_quota",
            )
        meters = self._of(account, model, now)
        costs = {name: 1.0 if name.startswith("requests") else float(tokens) for name in meters}
        waits = {name: each.wait_ns(now, costs[name]) for name, each in meters.items()}
        if as_if is not None:
            waits = {name: 1 for name in meters if name.startswith(as_if)} or {f"{as_if}/minute": 1}
        if waits != self._no_waits:
            raise self._refusal(now, model, meters, costs, waits)
        for name, each in meters.items():
            each.take(now, costs[name])
        states = self._states(now, meters)
        told = not self.limits.only_when_refused
        headers = write_headers(self._specs, states, costs) if told else ()
        requests, of_tokens = states.get("requests/minute"), states.get("tokens/minute")
        return ChargedTokens(
            tokens, headers, requests.remaining if requests else None, of_tokens.remaining if of_tokens else None
        )

    def settle(self, now: int, account: bytes, model: str, spent: ChargedTokens, tokens: int) -> None:
        """Count what a request really took in the place of what was thought."""
        for name, each in self._of(account, model, now).items():
            if name.startswith("tokens"):
                each.take(now, tokens - spent.tokens)

    def _refusal(
        self,
        now: int,
        model: str,
        meters: Mapping[str, Meter],
        costs: Mapping[str, float],
        waits: Mapping[str, int | None],
    ) -> LimitExceeded:
        # Named is what is hardest to wait for; the wait is told as it is once this request has counted too.
        name = max(waits, key=lambda each: math.inf if waits[each] is None else float(waits[each] or 0))
        unit = name.partition("/")[0]
        limit = meters.get(name)
        if self.limits.refused_count:
            for counted, each in meters.items():
                if counted.startswith("requests"):
                    each.refused(now, 1)
        wait = waits[name] if limit is None else limit.wait_ns(now, costs[name])
        shown = f"{limit.limit:g}" if limit else "0"
        headers = write_headers(self._specs, self._states(now, meters), {})
        about = f"{model} in organization org-emulator on {_SHORT[name]}: Limit {shown}"
        if wait is None:
            return LimitExceeded(
                "too_large",
                self.limits.too_large_status,
                f"Request too large for {about}, Requested {costs[name]:g}. The input or output tokens must be reduced "
                "in order to run successfully.",
                type=unit,
                code="rate_limit_exceeded",
                headers=headers,
            )
        wait = max(wait, waits[name] or 0)
        used = math.ceil(max(0.0, limit.limit - limit.room(now))) if limit else 0
        return LimitExceeded(
            name,
            self.limits.status,
            f"Rate limit reached for {about}, Used {used}, Requested {costs.get(name, 1):g}. Please try again in "
            f"{duration(wait)}.",
            type=unit,
            code="rate_limit_exceeded",
            headers=(*headers, *self._retry_after(wait)),
        )

    def _retry_after(self, wait_ns: int) -> Headers:
        said = self.limits.retry_after
        headers: list[tuple[str, str]] = []
        if said in ("both", "seconds"):
            headers.append(("retry-after", str(-(-wait_ns // _NS))))
        if said in ("both", "milliseconds"):
            headers.append(("retry-after-ms", str(-(-wait_ns // 1_000_000))))
        return tuple(headers)

    @staticmethod
    def _states(now: int, meters: Mapping[str, Meter]) -> dict[str, LimitState]:
        return {name: LimitState(each.limit, each.room(now), each.reset_ns(now)) for name, each in meters.items()}

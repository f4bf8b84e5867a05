"""When the next request may go, by everything that is known of the limits of one model and account."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from fastlane.errors import ConfigurationError
from fastlane.providers.facts import Counts, RateLimit, RateLimits
from fastlane.records.urgency import Level

from ._known import KnownLimits, known, known_stated
from ._limit import Limit
from ._reading import MOST_WAIT_S, Said, found_in, limits_in, retry_after_s, retry_headers_in, said, wall_of, wanted_of
from ._sharing import SharedPace, news_of
from ._spending import Mark, Spending
from ._stated import LearnedPace, Stated

_REFUSED = 429
_RESTING = frozenset({429, 503, 529})
# Of a refusal that says nothing more: the first and the longest pause of openai's own retries (0.5 s and 8 s), so
# that one which has nothing to do with the pace, a quota that is used up, holds nobody up for longer than that.
_FIRST_REST_S, _MOST_REST_S = 0.5, 8.0
# After a call was answered that should have waited, what other replicas say is not believed for so long.
_DOUBTED_S = 600.0
# By so much at most, and by that share, a rest is longer than what was asked for: never shorter.
_REST_JITTER, _MOST_REST_JITTER_S = 0.05, 0.5
_SMOOTHED_WINDOW_S = 600.0
# A level is nobody's exact knowledge: a refusal below so much of a limit is no surprise.
_SURPRISE = 0.05
_MOST_LIMITS = 16
_NS = 1e9
# What answers tell more often than that is nothing new: the estimate knows what was spent meanwhile.
_READ_EVERY_S = 0.01


@dataclass(slots=True)
class Spent:
    """One request that has left, and what was thought then. To be handed back; not to be changed."""

    number: int
    at_s: float
    tokens: int
    requests_before: float
    tokens_before: float
    marks: dict[str, Mark]
    counted: float
    """Tokens of it that are counted at the moment."""
    is_answered: bool = False
    is_settled: bool = False


class Pacer:
    """Keeps requests for one model with one account to the provider's limits.

    Pure: the time is handed in, as monotonic nanoseconds. Not thread-safe: its owner has a lock. Nothing is held back
    before something is known: by the application, by an answer, or by a refusal.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        facts: RateLimits | None = None,
        jitter: Random | None = None,
    ) -> None:
        self._random = (jitter or Random()).random
        self._read: dict[str, RateLimit] = limits_in(facts)
        self._retry_headers = retry_headers_in(facts)
        self._wanted = wanted_of(self._read.values(), self._retry_headers)
        self._refunded = facts.refunded.value if facts is not None and facts.refunded is not None else None
        self._limits: dict[str, Limit] = {}
        self._stated: dict[Counts, Stated] = {}
        self._learned = LearnedPace()
        self._shared: SharedPace | None = None
        self._number = 0
        self._spending = Spending()
        self._rest_until_s = self._asked_until_s = 0.0
        """Until when nothing is sent, and until when the provider asked for that, which may be longer."""
        self._rested = -1
        """The request that was refused with it: an answer to a later one ends the rest."""
        self._free_s = -math.inf
        """When a request last left, or could have left."""
        self._is_probe, self._probe = False, -1
        self._unconfirmed: list[str] = []
        """Limits that only other replicas have reported."""
        self._doubted_until_s = -math.inf
        self._in_vain = 0
        self._smooth_cut = -1
        self._read_s = -math.inf
        self._in_vain_s = 0.0
        self._refused = 0
        self.state(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)

    def state(self, *, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Keep to limits that the application states; None: to none. Raises ConfigurationError for what is none."""
        given: tuple[tuple[Counts, str, float | None], ...] = (
            ("requests", "requests_per_minute", requests_per_minute),
            ("tokens", "tokens_per_minute", tokens_per_minute),
        )
        for counts, name, limit in given:
            if limit is None:
                self._stated.pop(counts, None)
                continue
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
                raise ConfigurationError(
                    f"{name} expects a number above 0, got {limit!r}: leave it out where there is no limit"
                )
            stated = self._stated.get(counts)
            if stated is None:
                self._stated[counts] = Stated(counts, limit, 0.0)
            else:
                stated.state(limit)

    def ready_ns(self, now_ns: int, *, tokens: int, level: Level, is_next: bool = True) -> int:
        """Return when a request of so many tokens may go; `now_ns` where it may at once.

        `is_next`: whether no other request goes before it. Such a request waits for a minute at most for what
        responses and other replicas have reported: its own response shows whether that is so.
        """
        now_s = now_ns / _NS
        if self._shared is not None and self._shared.heard:
            self._hear(self._shared, now_s)
        background = level != "interactive"
        ready_s = max(now_s, self._learned.ready_s(now_s), self._rest_until_s)
        for limit in self._limits.values():
            ready_s = max(ready_s, limit.ready_s(now_s, limit.cost(1.0, tokens), background=background))
        if ready_s <= now_s:
            self._free_s = now_s
        self._is_probe = is_next and ready_s > now_s >= self._free_s + MOST_WAIT_S
        if is_next:
            ready_s = min(ready_s, self._free_s + MOST_WAIT_S)
        for stated in self._stated.values():
            if not self._is_told(stated):
                cost = 1.0 if stated.counts == "requests" else tokens
                ready_s = max(ready_s, stated.ready_s(now_s, cost, background=background))
        return now_ns if ready_s <= now_s else max(now_ns + 1, math.ceil(ready_s * _NS))

    def spend(self, now_ns: int, *, tokens: int) -> Spent:
        """Count a request that leaves now."""
        now_s = now_ns / _NS
        if self._shared is not None and self._shared.heard:
            self._hear(self._shared, now_s)
        before = self._spending.requests, self._spending.tokens
        marks = {name: limit.spend(now_s, limit.cost(1.0, tokens)) for name, limit in self._limits.items()}
        self._spending.count(now_s, 1.0, tokens)
        self._learned.spend(now_s, 1.0)
        for stated in self._stated.values():
            stated.spend(now_s, 1.0 if stated.counts == "requests" else tokens)
        self._number += 1
        self._free_s = now_s
        if self._is_probe:
            self._probe, self._is_probe = self._number, False
        if now_s < self._asked_until_s:
            self._rest_until_s = now_s + MOST_WAIT_S  # the others wait for the response to this one
        if self._shared is not None:
            self._shared.spent(1.0, tokens)
        return Spent(self._number, now_s, tokens, *before, marks, float(tokens))

    def answered(self, now_ns: int, spent: Spent, status: int, headers: Mapping[str, str]) -> bool:
        """The head of an answer has come. `headers`: by names in lower case, or a mapping to which case is nothing.

        Returns whether it is a refusal that a limit per time explains: it tells nothing of too many at once.
        """
        now_s = now_ns / _NS
        spent.is_answered = True
        if status < 500 and status != _REFUSED:
            if spent.number > self._rested:
                self._rest_until_s = self._asked_until_s = 0.0
            if spent.number == self._probe:
                self._begin_anew(now_s)
        for name in self._unconfirmed:
            self._limits.pop(name, None)
        self._unconfirmed.clear()
        if status < 400 and self._limits and 0 <= now_s - self._read_s < _READ_EVERY_S:
            self._in_vain = 0
            return False
        self._read_s = now_s
        found = found_in(headers, self._wanted)
        wall = wall_of(found)
        told: list[tuple[Limit, Said]] = []
        for name, read in self._read.items():
            heard = said(read, found, wall)
            if heard is not None:
                limit = self._limit_told(name, read, heard, spent, now_s)
                if limit is not None:
                    told.append((limit, heard))
        is_explained = False
        if status in _RESTING:
            asked_s = retry_after_s(self._retry_headers, found, wall)
            is_explained = self._turned_away(now_s, spent, status, told, asked_s)
        elif status < 500:
            self._in_vain = 0
        if self._shared is not None:
            self._shared.knows(now_s, self._limits.values())
        return is_explained

    def settled(self, now_ns: int, spent: Spent, tokens: int | None) -> None:
        """A call is over; `tokens` is what the provider counted, None where nobody knows."""
        now_s = now_ns / _NS
        if not spent.is_answered and spent.number == self._number and now_s < self._asked_until_s:
            self._rest_until_s = now_s  # the probe ended without a response
        if spent.is_settled or tokens is None or tokens < 0:
            return
        spent.is_settled = True
        unused = spent.counted - tokens
        spent.counted = tokens
        stated = self._stated.get("tokens")
        if stated is not None:
            stated.advance(now_s)
            stated.take_back(unused)
        if self._refunded:
            # Where nobody says that it is given back, the next answer's headers tell.
            for name in spent.marks:
                limit = self._limits.get(name)
                if limit is not None and limit.counts == "tokens":
                    limit.advance(now_s)
                    limit.take_back(unused)

    def limits(self) -> KnownLimits:
        """Return what is known, as of the last request or answer."""
        return KnownLimits(
            limits=(
                *(known(limit) for limit in self._limits.values()),
                *(known_stated(stated) for stated in self._stated.values() if not self._is_told(stated)),
            ),
            requests_per_s=self._learned.per_s,
            rests_until_ns=math.ceil(self._rest_until_s * _NS) if self._rest_until_s else None,
            refused=self._refused,
        )

    @property
    def is_shared(self) -> bool:
        """Whether other processes share its limits."""
        return self._shared is not None

    def share(self, shared: SharedPace) -> None:
        """Share its limits with other processes."""
        self._shared = shared

    def _is_told(self, stated: Stated) -> bool:
        """Whether answers tell of a limit of the same things that is no larger: then they know what is left."""
        return any(
            one.counts == stated.counts and one.rate * 60.0 <= stated.limit * 1.001 and name not in self._unconfirmed
            for name, one in self._limits.items()
        )

    def _limit_told(self, name: str, read: RateLimit, heard: Said, spent: Spent, now_s: float) -> Limit | None:
        limit, mark = self._limits.get(name), spent.marks.get(name)
        if read.counts == "requests":
            spent_before, own, total = spent.requests_before, 1.0, self._spending.requests
        else:
            spent_before, own, total = spent.tokens_before, float(spent.tokens), self._spending.tokens
        if limit is not None:
            if mark is not None:
                limit.advance(now_s)
                around = self._spending.around(spent.at_s, read.counts, spent_before, own)
                limit.answered(heard, number=spent.number, sent_s=spent.at_s, mark=mark, around=around)
        elif len(self._limits) < _MOST_LIMITS:
            self._limits[name] = limit = Limit(
                name,
                read,
                said=heard,
                sent_s=spent.at_s,
                spent_since=total - spent_before - own,
                now_s=now_s,
                random=self._random,
            )
        return limit

    def _turned_away(
        self, now_s: float, spent: Spent, status: int, told: list[tuple[Limit, Said]], asked_s: float | None
    ) -> bool:
        is_explained = False
        if status == _REFUSED:
            self._refused += 1
            self._not_taken(now_s, spent)
            is_explained = self._explain(spent, told)
            if not is_explained:
                self._surprised(now_s, spent)
        self._free_s = now_s
        if asked_s is not None:
            self._asked_until_s = max(self._asked_until_s, now_s + asked_s)
            rest_s = min(MOST_WAIT_S, asked_s)
            jitter_s = self._random() * min(_MOST_REST_JITTER_S, _REST_JITTER * rest_s)
            self._rest(now_s + rest_s + jitter_s, spent.number)
        elif status == _REFUSED and not (told and is_explained):
            rest_s = min(_MOST_REST_S, _FIRST_REST_S * 2.0 ** min(self._in_vain, 16))
            self._rest(now_s + rest_s * (1 + 0.5 * self._random()), spent.number)
        if spent.at_s >= self._in_vain_s:
            self._in_vain += 1
            self._in_vain_s = now_s
        if self._shared is not None and self._rest_until_s > now_s:
            self._shared.rests(self._rest_until_s - now_s)
        return is_explained

    def _not_taken(self, now_s: float, spent: Spent) -> None:
        """No server counts the tokens of a request that it refuses; some count the request."""
        stated = self._stated.get("tokens")
        if stated is not None:
            stated.advance(now_s)
            stated.take_back(spent.counted)
        spent.counted = 0.0
        spent.is_settled = True

    def _rest(self, until_s: float, number: int) -> None:
        """Send nothing until then, or until a request after the `number`-th is answered."""
        if until_s > self._rest_until_s:
            self._rest_until_s = until_s
            for limit in self._limits.values():
                limit.hold(until_s)
        self._rested = max(self._rested, number)

    def _begin_anew(self, now_s: float) -> None:
        """Forget all limits but the application's: a request was answered that they would have held back."""
        self._limits.clear()
        self._learned = LearnedPace()
        self._rest_until_s = self._asked_until_s = 0.0
        self._doubted_until_s = now_s + _DOUBTED_S

    def _explain(self, spent: Spent, told: list[tuple[Limit, Said]]) -> bool:
        """Find the limit that a request was refused for."""
        is_explained = False
        for limit, heard in told:
            cost = limit.cost(1.0, spent.tokens)
            if heard.remaining < cost:
                limit.refused(cost)
                is_explained = True
        if told:
            return is_explained
        for limit in self._limits.values():
            mark = spent.marks.get(limit.name)
            if mark is not None and mark.level < _SURPRISE * limit.limit:
                limit.refused(limit.cost(1.0, spent.tokens))
                limit.take_back(-max(0.0, mark.level))
                is_explained = True
        return is_explained

    def _surprised(self, now_s: float, spent: Spent) -> None:
        """Refused though there was enough of every limit that is known: they are enforced over shorter times."""
        spread = [limit for limit in self._limits.values() if limit.window_s <= _SMOOTHED_WINDOW_S]
        if not any(limit.counts == "requests" for limit in spread):
            self._learned.refused(now_s, spent.number, self._number)
        if spent.number <= self._smooth_cut:
            return
        self._smooth_cut = self._number
        for limit in spread:
            limit.spread.less()

    def _hear(self, shared: SharedPace, now_s: float) -> None:
        while shared.heard:
            kind, what, at_ns = shared.heard.popleft()
            if now_s < self._doubted_until_s:
                continue
            try:
                news = news_of(kind, what, min(at_ns / _NS, now_s))
            except (ArithmeticError, LookupError, TypeError, ValueError):
                continue  # of another version
            if news.rest_until_s > now_s:
                if self._rest_until_s <= now_s:
                    self._free_s = max(self._free_s, now_s)
                self._rest(news.rest_until_s, self._number)
            if news.requests or news.tokens:
                self._spending.count(now_s, news.requests, news.tokens)
                self._learned.spend(now_s, news.requests)
                for stated in self._stated.values():
                    stated.others_spent(now_s, news.requests if stated.counts == "requests" else news.tokens)
                for limit in self._limits.values():
                    limit.others_spent(now_s, limit.cost(news.requests, news.tokens), news.at_s)
            for name, whole, window_s, level in news.limits:
                read = self._read.get(name)
                if read is not None and name not in self._limits:
                    self._unconfirmed.append(name)
                    self._limits[name] = Limit(
                        name,
                        read if read.window_s == window_s else read.model_copy(update={"window_s": window_s}),
                        said=Said(whole, level, None, 1.0),
                        sent_s=news.at_s,
                        spent_since=0.0,
                        now_s=now_s,
                        random=self._random,
                    )

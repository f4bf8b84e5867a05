"""An estimate of what is left of one limit: put right by what answers say, and carried on between them.

An answer's headers were written when its request was admitted, seconds before they arrive. So each request is stamped
with what the estimate was when it left, and what an answer says is compared with that: the difference is added to the
estimate of now, in which everything sent since is counted already. Of answers that overtake each other, the one whose
request left last counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from fastlane.providers.facts import RateLimit

from ._reading import Said
from ._spending import Around, Mark
from ._spread import Spread

Kind = Literal["bucket", "window"]

_WINDOWS_S = (1.0, 60.0, 3_600.0, 86_400.0)
# What of a window's budget, evenly spread over what is left of it, is kept back: from requests that somebody waits for,
# and from others. As the window ends, so does what is kept.
_KEPT, _KEPT_FROM_BACKGROUND = 0.25, 0.5
# Windows that nobody waits out: their budget is spent as it comes, and what is kept from background is a little.
_LONG_S, _KEPT_OF_LONG = 600.0, 0.05
# Of a bucket: what is kept back because estimates are estimates, at least and at most, and what background leaves.
_LEAST_MARGIN, _MOST_MARGIN, _LEFT_BY_BACKGROUND = 0.01, 0.1, 0.1
_MOST_MARGIN_OF_SMALL = 0.5
_MARGIN_GROWS, _MARGIN_FADES_S = 1.5, 120.0
# How fast what is learned of the refill follows, and over how long it is looked at, in seconds.
_REFILL_FOLLOWS_S, _REFILL_SPAN_S, _MOST_DOUBT = 3.0, 1.0, 0.05
# A limit that others use up as well still refills for us, if slowly: else nobody would ever ask again.
_LEAST_REFILL = 0.05
_EXPECTED_S = 2.0
# A window that gives so much of its rate back before its end is none.
_NO_WINDOW = 0.25
# Where requests had to wait up to so many seconds ago, others do as well: they are sent at this multiple of the rate at
# most, so that answers can tell in time what others have sent, and so much of a second at once.
_HELD_S, _BRISK, _BRISK_TOLERANCE_S = 5.0, 2.0, 0.25
# How far resets may be from what a kind of limit would say, on average, as a share.
_MOST_ERROR, _COMPARED_S = 0.25, 0.04
_GUARD_S, _MOST_JITTER_S = 0.03, 1.0


class Limit:
    """One limit, as far as it is known. Times are seconds of the monotonic clock."""

    __slots__ = (
        "_brisk_s", "_compared_s", "_corrected", "_errors", "_faded_s", "_first_full_at", "_full_at", "_full_was_said",
        "_has_learned", "_held_s", "_jitter_s", "_look", "_newest", "_random", "_step", "at", "counts",
        "given_window_s", "holds", "kind", "level", "limit", "margin", "name", "refill", "scale", "spread", "told_s",
        "window_s",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        facts: RateLimit,
        *,
        said: Said,
        sent_s: float,
        spent_since: float,
        now_s: float,
        random: Callable[[], float],
    ) -> None:
        self.name = name
        self.counts, kind = facts.counts, facts.kind
        self.given_window_s = facts.window_s
        self.window_s = facts.window_s or 60.0
        self.limit = said.limit if said.limit is not None else max(said.remaining, 1.0)
        self.holds = self.limit
        """How much there is at most at one time: less than the limit where a bucket is smaller than that."""
        self.scale = 1.0
        """What a token of ours is in the limit's own counting, where that counts some kinds of tokens alone."""
        self.margin = _LEAST_MARGIN
        self._faded_s = now_s
        self.spread = Spread(facts.enforced_s)
        self._step = float(facts.remaining_step or 0)
        self._brisk_s = now_s
        self._compared_s = -math.inf
        self._held_s = [-math.inf, -math.inf]
        self.told_s = sent_s
        self.kind: Kind | None = kind
        """What its resets look like, or what facts say; None where neither is plain."""
        self.refill = 0.0 if kind == "window" else self.rate
        self._random = random
        self._errors = {self.window_s if kind != "window" else 0.0: 0.0}
        """By the hypothesis, a bucket with a window of so many seconds, or 0, a window: how far resets were from it."""
        self._has_learned = True
        self._full_at: float | None = None
        self._first_full_at = 0.0
        self._full_was_said, self._jitter_s = False, 0.0
        self._newest, self._corrected = -1, 0.0
        self._look: tuple[float, float, float] | None = None
        """When the refill was looked at last, what was left, and what had been spent."""
        self.level = said.remaining
        self.at = sent_s
        if said.reset_s is not None:
            self._take_reset(said, sent_s)
        self.advance(now_s)
        self.level -= spent_since * self.scale

    @property
    def rate(self) -> float:
        """What it allows each second in the long run."""
        return self.limit / self.window_s

    def advance(self, now_s: float) -> None:
        """Let the time pass until now."""
        if now_s <= self.at:
            return
        full_at = self._full_at
        if full_at is not None and full_at <= now_s:
            self._flow(full_at)
            self._look = None
            self._full_was_said = False
            if self.kind == "window":
                # By our clock. Until an answer says so as well, what a moment brings may be spent, and not all of it.
                self.level = max(self.level, self.margin * self.limit)
                self._full_at = full_at + self.window_s * max(1.0, (now_s - full_at) // self.window_s + 1)
                self._jitter_s = self._random()
            else:
                self.refill = self.rate  # what was expected by now; what comes will say more
                self._full_at = None
        self._flow(now_s)

    def _flow(self, until_s: float) -> None:
        if until_s > self.at:
            self.level = min(self.holds, self.level + self._slope * (until_s - self.at))
            self.at = until_s

    @property
    def _slope(self) -> float:
        """What it gains in a second."""
        if self.kind == "window":
            # Without knowing when it ends, a limit that is never whole again would be none that can be kept.
            if not self._full_was_said:
                return self.rate
            # What others take is expected for as long as answers have told of it just now.
            return min(0.0, self.refill) if self.at - self._faded_s < _EXPECTED_S else 0.0
        return max(self.refill, _LEAST_REFILL * self.rate)

    @property
    def _others(self) -> float:
        """The share of the limit that goes to others, as far as it shows."""
        share = -self.refill / self.rate
        return min(1.0, max(0.0, share if self.kind == "window" else 1 + share))

    def cost(self, requests: float, tokens: float) -> float:
        """What a request is in the limit's own counting."""
        return requests if self.counts == "requests" else tokens * self.scale

    def ready_s(self, now_s: float, cost: float, *, background: bool) -> float:
        """When so much may be spent: now or later."""
        # It has refilled since, if anything: where there was plenty then, nothing has to be worked out.
        if (
            self._full_at is None
            and self.level >= 2 * cost + (self.margin + _LEFT_BY_BACKGROUND) * self.holds
            and not self.spread.share
            and now_s - self._held_s[background] >= _HELD_S
        ):
            return now_s
        self.advance(now_s)
        ready_s = self._level_ready_s(now_s, cost, background=background)
        if ready_s > now_s:
            self._held_s[background] = now_s
        elif now_s - self._held_s[background] < _HELD_S:
            ready_s = max(now_s, self._brisk_s)
            if ready_s > now_s:
                self._held_s[background] = now_s
        return max(ready_s, self.spread.ready_s(now_s, cost, self.rate)) if self.spread.share else ready_s

    def hold(self, now_s: float) -> None:
        """Whatever has waited meanwhile is not sent all at once."""
        self._held_s = [now_s, now_s]

    def _level_ready_s(self, now_s: float, cost: float, *, background: bool) -> float:
        if self.kind == "window" and self._full_at is not None:
            return self._ready_in_window(now_s, cost, self._full_at, background=background)
        kept = self.margin + (_LEFT_BY_BACKGROUND if background else 0.0)
        need = min(cost * (1 + self._others) + kept * self.holds, max(self.holds, 1.0))
        if self.level >= need:
            return now_s
        wait_s = (need - max(self.level, -self.limit)) / self._slope  # of what was sent unknowing, one limit is owed
        if self._full_at is not None and self._full_at < now_s + wait_s and cost <= self.limit:
            wait_s = self._full_at - now_s + _GUARD_S
        return now_s + wait_s * (1 + 0.05 * self._jitter_s)

    def _ready_in_window(self, now_s: float, cost: float, full_at: float, *, background: bool) -> float:
        end_s = full_at + _GUARD_S + self._jitter_s * min(_MOST_JITTER_S, 0.01 * self.window_s)
        spare = (self.margin - _LEAST_MARGIN) * self.limit + cost * self._others
        need = min(cost + spare, self.limit)
        if self.level < need:
            owed = need - max(self.level, -self.limit)
            return max(now_s, end_s) if self._full_was_said else now_s + owed / self._slope
        if not self._full_was_said:
            return now_s
        if self.window_s > _LONG_S:
            kept = _KEPT_OF_LONG if background else 0.0
        else:
            kept = _KEPT_FROM_BACKGROUND if background else _KEPT
        if kept == 0.0 or cost >= self.limit:
            return now_s
        # What is kept shrinks evenly until the window ends: the moment at which it has come down to what would be left.
        return min(max(now_s, full_at - (self.level - cost) * self.window_s / (kept * self.limit)), end_s)

    def spend(self, now_s: float, cost: float) -> Mark:
        """Count what leaves now."""
        self.advance(now_s)
        self.level -= cost
        paced = min(cost, self.limit)  # what is larger was let through whole, and is waited for no longer than that
        self._brisk_s = max(self._brisk_s, now_s - _BRISK_TOLERANCE_S) + paced / (_BRISK * self.rate)
        if self.spread.share:
            self.spread.spend(now_s, paced, self.rate)
        return Mark(self.level, self._corrected)

    def take_back(self, cost: float) -> None:
        """What was counted was not used after all, or more was."""
        self.level = min(self.holds, self.level + cost)
        self._corrected += cost

    def answered(self, said: Said, *, number: int, sent_s: float, mark: Mark, around: Around) -> None:
        """An answer has come to the request of that number."""
        if number <= self._newest:
            return
        self._newest, self.told_s = number, sent_s
        if said.limit is not None and said.limit != self.limit:
            self._change(said.limit)
        elif said.limit is None:
            self.limit = self.holds = max(self.limit, said.remaining)
        if said.reset_s is not None:
            self._take_reset(said, sent_s)
        self._look_at_refill(said.remaining, sent_s, around)
        expected = mark.level + self._corrected - mark.corrected
        before, after = around.before * self.scale + self._step, around.after * self.scale + self._step
        off = said.remaining - expected
        error = min(0.0, off + after) + max(0.0, off - before)
        self.level = min(max(self.holds, said.remaining), self.level + error)
        self._corrected += error
        fading = math.exp(-max(0.0, self.at - self._faded_s) / _MARGIN_FADES_S)
        self.margin = _LEAST_MARGIN + (self.margin - _LEAST_MARGIN) * fading
        self._faded_s = self.at

    def _change(self, limit: float) -> None:
        self.refill *= limit / self.limit
        self.limit = self.holds = limit
        self._look = None

    def refused(self, cost: float) -> None:
        """A request of so much was refused for this limit, though it was thought to fit."""
        own = cost / self.holds
        most = max(_MOST_MARGIN, min(_MOST_MARGIN_OF_SMALL, 2 * own))
        self.margin = min(most, max(self.margin * _MARGIN_GROWS, self.margin + own / 2))

    def others_spent(self, now_s: float, cost: float, at_s: float) -> None:
        """Count what another replica spent, the whole limit at most."""
        cost = min(cost, self.limit)
        if self.spread.share:
            self.spread.spend(now_s, cost, self.rate)
        # Where answers have just told what is left, they have told of that too.
        if now_s - self._faded_s > _EXPECTED_S and at_s > self.told_s:
            self.advance(now_s)
            self.take_back(-cost)

    def _take_reset(self, said: Said, sent_s: float) -> None:
        """See which kind of limit has such a reset, and when it is whole again."""
        assert said.reset_s is not None
        full_at = sent_s + said.reset_s + (said.step_s if said.step_s == 1.0 else 0.0)
        usual_s = self.given_window_s or 60.0
        holds = said.remaining + said.reset_s * self.limit / usual_s
        if 0 < holds < 0.9 * self.limit and self.kind != "window":  # "0 left, whole in 0 s" says nothing
            self.holds = max(self.holds if self.holds < self.limit else 0.0, holds)
        elif holds <= 1.05 * self.limit:
            self.holds = self.limit
        is_new = sent_s - self._compared_s >= _COMPARED_S
        if is_new and self.limit - said.remaining >= max(1.0, 0.001 * self.limit):
            self._compared_s = sent_s
            for window in {*_WINDOWS_S, usual_s}:
                used = (self.holds if window == usual_s else self.limit) - said.remaining
                expected_s = max(0.0, used) / self.limit * window
                off = max(0.0, abs(said.reset_s - expected_s) - said.step_s)
                self._learn(window, off / max(said.reset_s, expected_s, 0.01))
        if self._full_at is not None and self._full_was_said and sent_s < self._full_at:
            off = abs(full_at - self._first_full_at)
            # Two answers at nearly the same time have nearly the same reset, whatever kind it is.
            self._learn(0.0, max(0.0, off - said.step_s - 0.25) / max(1.0, 0.02 * self.window_s))
        if self._has_learned:
            self._has_learned = False
            self.kind = self._likely_kind()
        if self.kind == "bucket":
            self._full_at = None  # it fills as it does
            if not is_new:
                return
            windows = [(error, window != self.window_s, window) for window, error in self._errors.items() if window]
            window_s = min(windows)[2]
            if window_s != self.window_s:
                self.window_s = window_s
                self.refill = self.rate
            return
        if self.given_window_s is not None and said.reset_s <= 1.05 * self.given_window_s:
            self.window_s = self.given_window_s
        elif said.reset_s > 1.05 * self.window_s:
            self.window_s = next((window for window in _WINDOWS_S if 1.05 * window >= said.reset_s), said.reset_s)
        if full_at <= self.at:
            return  # of a window that is over meanwhile
        if self._full_at is not None and self._full_was_said and abs(full_at - self._full_at) < 1.5:
            # Between when a request left and when it was admitted there is a way: the latest is nearest to the truth.
            self._full_at = max(self._full_at, full_at)
        else:
            self._first_full_at = self._first_full_at if self._full_was_said else full_at
            self._full_at, self._full_was_said = full_at, True
            self._jitter_s = self._random()

    def _likely_kind(self) -> Kind | None:
        best = min(self._errors, key=lambda window: (self._errors[window], window != self.window_s))
        return None if self._errors[best] > _MOST_ERROR else "window" if best == 0.0 else "bucket"

    def _learn(self, hypothesis: float, off: float) -> None:
        self._has_learned = True
        before = self._errors.get(hypothesis, 0.5)
        self._errors[hypothesis] = before + 0.2 * (min(1.0, off) - before)

    def _look_at_refill(self, remaining: float, sent_s: float, around: Around) -> None:
        """See what has come back since the last look: less than the limit's rate where others spend as well."""
        spent, in_doubt = around.spent * self.scale, (around.before + around.after) * self.scale
        if in_doubt > _MOST_DOUBT * self.limit:
            return
        if self._look is None:
            self._look = (sent_s, remaining, spent)
            return
        since_s, before, spent_before = self._look
        span_s = sent_s - since_s
        if span_s < _REFILL_SPAN_S:
            return
        self._look = (sent_s, remaining, spent)
        came = (remaining - before + spent - spent_before) / span_s
        if remaining + in_doubt >= 0.98 * self.holds and came < self.rate:
            return  # it is full: what would have come had no room
        follows = 1 - math.exp(-span_s / _REFILL_FOLLOWS_S)
        if self.kind == "window" and came > _NO_WINDOW * self.rate:
            self._learn(0.0, 1.0)
        least, most = (-self.rate, 0.0) if self.kind == "window" else (0.0, self.rate)
        self.refill += follows * (min(max(came, least), most) - self.refill)
        if self.counts in ("input_tokens", "output_tokens") and spent > spent_before:
            share = (before - remaining + self.rate * span_s) / (spent - spent_before)
            self.scale *= 1 + follows * (min(max(share, 0.5), 2.0) - 1)
            self.scale = min(2.0, max(0.001, self.scale))
            self.refill = self.rate
            self._look = None

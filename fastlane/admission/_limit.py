"""How many calls at once a provider serves, found out by sending a few more, or fewer, and comparing."""

from __future__ import annotations

from collections import deque

from ._evidence import Sample, Shift, mean_duration_s, mean_in_flight, shift
from ._overload import Overload
from ._trial import Direction, Mark as Mark, Trial

# TCP starts with ten packets (RFC 6928) and doubles each round trip; what a call costs is known after its seconds only,
# so that the calls for which nobody waits start with fewer, and those for which somebody does may go ahead of them.
FIRST = 4
UNPROVEN = 64
MOST = 65_536
# A trial rests on so many calls: fewer say nothing, more cost more than they tell.
_FEWEST, _LARGEST = 8, 64
# And on up to so many times as many, where they did not tell enough.
_LARGER = 4
# TCP Vegas probes by a few packets, BBR by a quarter: with an eighth, few calls are late, and the delay is seen.
_STEP = 1 / 8
# As TCP does after a loss, at most half is taken away at once; and a tenth where the refusal does not tell how many, as
# the AIMD limit of Netflix' concurrency-limits does (`backoffRatio`).
_LEAST_KEPT, _REFUSED = 0.5, 0.9
# Windows are compared when so many calls are over, by so many of each: ten differences for a call.
_COMPARED, _COMPARED_OF_EACH = 24, 16
# How much of the estimate is left in a step down: to confirm what is believed, and where the calls have become late.
_CONFIRMING, _DOUBTING = 0.75, 0.5
# Two standard errors, and three where a look is taken again and again.
_SURE, _ALARMING = 2.0, 3.0
# What is known is tried again after so many windows: twice as many each time that it proves right.
_LONGEST_HOLD = 16
# Of so many trials one is a step down: what the others are compared with may itself have been late.
_CONFIRM_EVERY = 4
# A trial is judged when so many of its calls are over, at the latest when so many times as many were sent since.
_ENOUGH, _PATIENCE = 7 / 8, 16
# After so long a silence nothing is certain any more.
_STALE_NS = 60_000_000_000


class ConcurrencyLimit:
    """The estimate of a provider's places.

    Of `n` calls that are under way, Little's law says that `q = n * w / R` wait, where `w` is how much later their
    first tokens are than those of calls sent among fewer, and `R` how long they take: the formula of TCP Vegas, with
    the delay of the first token in the place of the whole round trip, whose length here is mostly the answer's. So a
    provider that queues has `n - q` places. One that refuses says it itself: fewer than the refused call's `n`.

    Both sides of a comparison are sent within the same moments, as in PCC's trials: what changes by itself, such as
    longer prompts, changes both. Nothing is concluded from late first tokens alone.
    """

    __slots__ = (
        "_allowed", "_binding", "_busy", "_confirmed", "_cut_at", "_hold", "_last_ns", "_learning", "_limit",
        "_need_times", "_overload", "_recent", "_seen", "_sent", "_step", "_trial", "_trials", "_usual", "_wanted",
        "_windows", "_worried", "for_interactive", "for_others", "guarded", "learning", "places",
    )  # fmt: skip

    places: int
    """How many calls at once the provider is believed to serve."""
    for_others: int
    """The most calls at once, now, of which the next is not interactive."""
    for_interactive: int
    """The same where it is."""
    guarded: bool
    """Whether places are kept free for interactive calls: not for the moment in which more are tried."""
    learning: bool
    """Whether no bound was met yet."""

    def __init__(self, most: int | None = None) -> None:
        self._allowed = most
        self._limit = float(FIRST)
        self._learning = True
        self._step = 1.0
        self._hold = 1
        self._windows = 0.0
        self._wanted = False
        self._worried = False
        self._confirmed = True
        self._need_times = 1
        self._trials = 0
        self._trial: Trial | None = None
        self._binding = False
        self._busy = False
        self._seen = 0
        self._sent = 0
        self._cut_at = 0
        self._last_ns = 0
        self._overload = Overload()
        self._usual: deque[Sample] = deque(maxlen=_LARGEST)
        """Calls at the usual level, those before the last window's."""
        self._recent: list[Sample] = []
        """And those since, which are compared with them when there are enough."""
        self._say()

    @property
    def most(self) -> int | None:
        """The most that the application allows; None: no bound of its."""
        return self._allowed

    @most.setter
    def most(self, most: int | None) -> None:
        if most != self._allowed:
            self._allowed = most
            self._say()

    def _say(self) -> None:
        """Work out what every call asks for, after every change."""
        self.learning = self._learning
        self.places = places = self._bounded(self._limit + 0.5)
        urgent = max(places, min(UNPROVEN, self._most())) if self._learning else places
        trial = None if self._busy else self._trial
        if trial is None:
            self.for_others, self.for_interactive, self.guarded = places, urgent, True
        elif trial.direction == "up":
            level = self._bounded(trial.level)
            self.for_others, self.for_interactive, self.guarded = level, max(level, urgent), False
        else:
            # A step down is no reason to have anybody wait who is waited for, unless there is nobody else.
            self.for_others = self._bounded(trial.level)
            self.for_interactive, self.guarded = self.for_others if self._binding else urgent, True

    def wanted(self) -> None:
        """A call waits for a place, or soon will: more would be used."""
        self._wanted = True

    def sent(self, now_ns: int, in_flight: int) -> Mark:
        """A call is sent; there are so many with it. Returns its mark."""
        self._sent += 1
        self._overload.sent(in_flight)
        if now_ns - self._last_ns > _STALE_NS:
            self._hold = 1
            self._usual.clear()
            self._recent.clear()
        self._last_ns = now_ns
        trial = self._trial
        if trial is None:
            return None
        trial.age += 1
        if trial.age > _PATIENCE * trial.need:
            # Some of its calls are held open, or no call comes to its level.
            self._binding = trial.direction == "down" and not self._busy
            self._conclude(trial)
            return None
        if self._busy or (in_flight <= self.places if trial.direction == "up" else in_flight > trial.level):
            return None
        trial.sent += 1
        if trial.sent >= trial.need:
            self._busy = True
            self._say()
        return trial

    @property
    def number(self) -> int:
        """How many were sent: what tells a call sent after a refusal from one before it."""
        return self._sent

    def over(self, mark: Mark, sample: Sample | None) -> None:
        """A call is over; `sample` is None where nothing is known of its first token."""
        if isinstance(mark, Trial):
            if mark is self._trial:
                mark.over += 1
                if sample is not None:
                    mark.results.append(sample)
                if self._busy and mark.over >= _ENOUGH * mark.need:
                    self._conclude(mark)
            return
        if sample is None or self._trial is not None:
            # While a trial is under way, others stand behind its calls.
            return
        if sample.in_flight > self.places and not self._learning:
            # It was sent before there were so few.
            return
        self._recent.append(sample)
        self._seen += 1
        if self._seen >= self._need():
            self._seen = 0
            self._look()

    @staticmethod
    def tried(mark: Mark) -> bool:
        """Whether a call with this mark was more than usual."""
        return isinstance(mark, Trial) and mark.direction == "up"

    def refused(self, mark: Mark, number: int, in_flight: int) -> None:
        """A call was refused: the `number`-th that was sent, with so many under way, itself included."""
        if number <= self._cut_at or in_flight <= 1:
            # One that was alone was not refused for the others' sake.
            return
        tried = self.tried(mark)
        if isinstance(mark, Trial) and tried:
            among = mark.lost(in_flight)
        else:
            among = self._overload.refused(number, in_flight, since=self._cut_at, limit=max(self._limit, in_flight))
        if among is None:
            return
        in_flight = among
        # One cut for all that were sent before it was known, as for all losses of one window.
        self._cut_at = self._sent
        base = max(self._limit, float(in_flight)) if self._learning or tried else self._limit
        served = 0.0 if tried or self._learning or not self._usual else mean_in_flight(self._usual)
        told = in_flight - 1 if in_flight > served else _REFUSED * self._limit
        self._set(max(1.0, _LEAST_KEPT * base, min(base, told)))
        self._trial, self._busy = None, False
        self._say()

    def _look(self) -> None:
        """A window of calls at the usual level is over."""
        self._windows += 1
        if len(self._recent) >= _COMPARED or not self._confirmed:
            self._compare()
        if self._worried or not self._confirmed:
            self._try("down", _DOUBTING if self._worried else _CONFIRMING)
        elif self._windows >= self._hold and self._wanted:
            self._trials += 1
            if not self._learning and self._trials % _CONFIRM_EVERY == 0:
                self._try("down", _CONFIRMING)
            elif self.places < self._most():
                self._try("up")
            else:
                self._windows, self._wanted = 0, False
        self._say()

    def _compare(self) -> None:
        """Whether the latest calls are later than those before them; they are what others are compared with next."""
        now, self._recent = self._recent, []
        found = None if self._learning else shift(now, list(self._usual), most=_COMPARED_OF_EACH)
        if found is not None and found.later_s > _ALARMING * found.error_s:
            self._worried = self._queued(found, now) >= max(1.0, self._limit * _STEP)
        if self._worried or not self._confirmed:
            self._usual.clear()
        self._usual.extend(now)

    def _try(self, direction: Direction, kept: float = 1.0) -> None:
        self._windows, self._wanted = 0, False
        self._usual.extend(self._recent)
        self._recent = []
        if direction == "down":
            level = max(1, int(kept * mean_in_flight(self._usual)))
            if level >= mean_in_flight(self._usual) - 0.5:
                self._worried, self._confirmed = False, True
                return
            self._trial = Trial("down", level, self._size(self._limit - level), self._limit - level)
        else:
            step = self._limit if self._learning else max(1.0, self._step, _STEP * self._limit)
            level = min(self._most(), round(self._limit + step))
            self._trial = Trial("up", level, self._size(level - self._limit), level - self._limit)
        self._busy = False

    def _conclude(self, trial: Trial) -> None:
        self._trial, self._busy = None, False
        high, low = (trial.results, list(self._usual)) if trial.direction == "up" else (self._usual, trial.results)
        found = shift(high, low)
        if found is None:
            # Nobody of them can be compared: as if it had not been tried, and with more the next time.
            self._need_times = min(_LARGER, 2 * self._need_times)
            self._worried, self._confirmed = self._worried and self._binding, True
            self._say()
            return
        if trial.direction == "up":
            self._concluded_up(trial, found)
        else:
            self._concluded_down(trial, found)
        self._say()

    def _concluded_up(self, trial: Trial, found: Shift) -> None:
        high, step = trial.results, trial.step
        queued = self._queued(found, high)
        if self._error(found, high) > step / 2 and queued < _SURE * self._error(found, high):
            # No verdict: more calls, and a larger step, tell more.
            self._need_times = min(_LARGER, 2 * self._need_times)
            self._step = min(self._limit, 2 * step)
            return
        places = mean_in_flight(high) - max(0.0, queued)
        if queued < step / 2:
            self._limit = float(self._bounded(max(self._limit, trial.level - max(0.0, queued))))
            self._hold, self._step, self._need_times = 1, 2 * step, 1
            return
        was_learning = self._learning
        self._set(max(1.0, _LEAST_KEPT * self._limit, min(self._limit + step, places)))
        self._confirmed = not was_learning

    def _concluded_down(self, trial: Trial, found: Shift) -> None:
        high = list(self._usual)
        queued = self._queued(found, high)
        open_question = self._worried or not self._confirmed
        self._worried, self._confirmed, self._binding = False, True, False
        self._usual.clear()
        self._usual.extend(trial.results)
        if found.later_s <= _SURE * found.error_s or queued < min(0.5, trial.step / 2):
            if open_question and self._error(found, high) > trial.step / 2 and self._need_times < _LARGER:
                self._need_times, self._confirmed = 2 * self._need_times, False
            return
        # It was our own calls that made them late. Where all that were left out had waited, more may wait.
        self._set(max(1.0, _LEAST_KEPT * self._limit, min(self._limit, mean_in_flight(high) - queued)))
        self._confirmed = queued < (mean_in_flight(high) - trial.level) * _CONFIRMING

    def _set(self, limit: float) -> None:
        """A bound was met. Where it is the one that was believed in, it is tried again later than last time.

        Where it is another, sooner.
        """
        known = not self._learning and abs(limit - self._limit) <= max(0.5, self._limit * _STEP / 2)
        self._hold = min(_LONGEST_HOLD, 2 * self._hold) if known else max(1, self._hold // 2)
        self._limit = limit
        self._learning = False
        self._step, self._need_times = 1.0, 1
        self._windows, self._wanted = 0, False
        self._recent = []

    @staticmethod
    def _queued(found: Shift, high: list[Sample] | deque[Sample]) -> float:
        return mean_in_flight(high) * found.later_s / mean_duration_s(high)

    @staticmethod
    def _error(found: Shift, high: list[Sample]) -> float:
        return mean_in_flight(high) * found.error_s / mean_duration_s(high)

    def _need(self) -> int:
        return min(_LARGEST, max(_FEWEST, round(self._limit)))

    def _size(self, step: float) -> int:
        """Of a trial: no more than tells, because they are those that may be late."""
        return min(_LARGEST, max(_FEWEST, round(min(self._limit, 2 * step)))) * self._need_times

    def _most(self) -> int:
        return MOST if self._allowed is None else self._allowed

    def _bounded(self, value: float) -> int:
        return max(1, min(self._most(), int(value)))

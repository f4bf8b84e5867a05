"""End an arm at once where its calls fail one after the other."""

from __future__ import annotations

from ._metrics import ANSWERED

# So many times as many errors end an arm beside which no other was asked: nothing tells it from the provider then.
_ALONE = 3


class Fuse:
    """Blows after so many errors of an arm in a row, unless the other arms fail too: then it is the provider.

    Counts the calls of this process, as they end. From any thread; a count that two threads write at once may miss one.
    """

    __slots__ = ("_answered", "_asked", "_errors", "_most", "_reference", "_since", "blown")

    def __init__(self, most: int | None, *, reference: str) -> None:
        self._most = most
        self._reference = reference
        self._errors: dict[str, int] = {}
        """By arm, in a row."""
        self._since: dict[str, tuple[int, int]] = {}
        """How many calls of all arms had failed or been answered, and how many answered, when an arm's row began."""
        self._asked = self._answered = 0
        self.blown: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """Why an arm ends."""
        return f"{self._most} of its calls in a row failed"

    def is_blown(self, outcome: str | None, arm: str) -> bool:
        """Note how a call ended; whether its arm is to end."""
        if self._most is None:
            return False
        # Calls that were given up say nothing of whoever would have answered them.
        is_error = outcome == "failed"
        before = self._asked, self._answered
        self._asked += is_error or outcome in ANSWERED
        self._answered += outcome in ANSWERED
        if arm == self._reference:
            return False
        if not is_error:
            if self._errors.get(arm) and outcome != "cancelled":
                self._errors[arm] = 0
            return False
        errors = self._errors[arm] = self._errors.get(arm, 0) + 1
        if errors == 1:
            self._since[arm] = before
        if errors < self._most:
            return False
        asked, answered = self._since[arm]
        of_others = self._asked - asked - errors
        if of_others <= 0:
            if errors < self._most * _ALONE:
                return False
        elif 2 * (self._answered - answered) < of_others:
            # Nothing is learned about the arm; nor will it be by errors of now, once the provider is back.
            self._errors[arm] = 0
            return False
        self.blown |= {arm}
        return True

    def reset(self) -> None:
        """Begin anew, as each stage does."""
        self._errors, self._since = {}, {}
        self.blown = frozenset()

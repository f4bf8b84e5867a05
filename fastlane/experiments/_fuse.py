"""End an arm at once where its calls fail one after the other."""

from __future__ import annotations


class Fuse:
    """Blows after so many errors of an arm in a row, unless the reference fails too: then it is the provider.

    Counts the calls of this process, as they end. From any thread; a count that two threads write at once may miss one.
    """

    __slots__ = ("_answered", "_asked", "_errors", "_most", "_reference", "_since", "blown")

    def __init__(self, most: int | None, *, reference: str) -> None:
        self._most = most
        self._reference = reference
        self._errors: dict[str, int] = {}
        """By arm, in a row."""
        self._since: dict[str, tuple[int, int]] = {}
        """How many calls of the reference were over, and answered, when an arm's row began."""
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
        if arm == self._reference:
            self._asked += 1
            self._answered += outcome != "failed"
            return False
        if outcome != "failed":
            if self._errors.get(arm) and outcome != "cancelled":
                self._errors[arm] = 0
            return False
        errors = self._errors[arm] = self._errors.get(arm, 0) + 1
        if errors == 1:
            self._since[arm] = self._asked, self._answered
        if errors < self._most:
            return False
        asked, answered = self._since[arm]
        # Who has asked the reference, and got no answer either, has learned nothing about the arm.
        if self._asked > asked and self._answered == answered:
            return False
        self.blown |= {arm}
        return True

    def reset(self) -> None:
        """Begin anew, as each stage does."""
        self._errors, self._since = {}, {}
        self.blown = frozenset()

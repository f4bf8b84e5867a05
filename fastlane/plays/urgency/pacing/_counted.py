"""What a request counts as before it is answered, by what facts say of the provider's limits of tokens."""

from __future__ import annotations

from fastlane.providers.facts import RateLimits


def tokens_counted(facts: RateLimits | None, *, prompt: float, output: float) -> int:
    """Return its tokens: of its prompt, and of its answer at most, as the provider adds them up.

    Where nobody says what is counted, it is both.
    """
    counted = facts.admission.value if facts is not None and facts.admission is not None else None
    if counted == "larger of both":
        return round(max(prompt, output))
    return round(prompt if counted == "prompt" else 0.0 if counted == "nothing" else prompt + output)

"""What ends an attempt whose tier has no capacity, so that the next tier can be asked at once."""

from __future__ import annotations


class TierFull(BaseException):
    """The tier that was asked for has no capacity, or is none for this key.

    It passes through openai's own loop, which would wait and ask for the same again, or hand the error out.
    """

    def __init__(self, retries_taken: int) -> None:
        super().__init__()
        self.retries_taken = retries_taken
        """Of openai's loop, before this attempt."""

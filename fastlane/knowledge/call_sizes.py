"""How many tokens a call has, by what the calls before it had: near enough for a budget and a delay."""

from __future__ import annotations

from math import exp, log

# Of English prose and JSON, before the provider has counted anything.
_TOKENS_PER_BYTE = 0.25
_OUTPUT_TOKENS = 500.0
# Of a body that nobody but openai's own code can write.
_INPUT_TOKENS = 2_000.0
_WEIGHT = 0.1
# One body with a picture in it says nothing of others.
_MOST_STEP = 1.0


class CallSizes:
    """What is known of the sizes of one upstream's prompts and answers: means of the latest calls.

    Nothing is locked: each value is written at once, and what two threads learn at the same moment may count once.
    """

    __slots__ = ("_cached_share", "_input", "_output", "_per_byte")

    def __init__(self) -> None:
        self._per_byte = log(_TOKENS_PER_BYTE)
        self._input: float | None = None
        self._output: float | None = None
        self._cached_share = 0.0

    def input_tokens(self, body_bytes: int) -> float:
        """Tokens of the prompt in a body of so many bytes of JSON; of 0 bytes, as many as the latest had."""
        if not body_bytes:
            return _INPUT_TOKENS if self._input is None else self._input
        return body_bytes * exp(self._per_byte)

    def output_tokens(self, limit: int | None) -> float:
        """Tokens of an answer: as the latest had, and no more than the caller's limit."""
        usual = _OUTPUT_TOKENS if self._output is None else self._output
        return usual if limit is None else min(usual, float(limit))

    @property
    def uncached_share(self) -> float:
        """The share of a prompt's tokens that the provider does not read from its cache."""
        return 1.0 - self._cached_share

    def learn(
        self, *, body_bytes: int, input_tokens: int | None, cached_tokens: int | None, output_tokens: int | None
    ) -> None:
        """Take note of what the provider has counted of one call; None is not known."""
        if input_tokens is not None and input_tokens > 0:
            known = input_tokens if self._input is None else self._input
            self._input = known + _WEIGHT * (input_tokens - known)
            if body_bytes > 0:
                step = log(input_tokens / body_bytes) - self._per_byte
                self._per_byte += _WEIGHT * min(_MOST_STEP, max(-_MOST_STEP, step))
            if cached_tokens is not None:
                share = min(1.0, max(0.0, cached_tokens / input_tokens))
                self._cached_share += _WEIGHT * (share - self._cached_share)
        if output_tokens is not None and output_tokens >= 0:
            known = output_tokens if self._output is None else self._output
            self._output = known + _WEIGHT * (output_tokens - known)

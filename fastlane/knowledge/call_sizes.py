"""Estimate the tokens of prompts and answers from the latest calls of a task or an upstream."""

from __future__ import annotations

# Defaults until the provider has counted: tokens per byte of English prose and JSON, of an answer, and of a prompt.
_TOKENS_PER_BYTE = 0.25
_OUTPUT_TOKENS = 300.0
_INPUT_TOKENS = 2_000.0
# Ratios out of this range come from images, audio or files. Short bodies are mostly JSON syntax.
_LEAST_PER_BYTE, _MOST_PER_BYTE = 0.08, 0.8
_LEAST_BYTES = 400
_REMEMBERED = 50.0
# A value counts as at most this many times the mean, so that one endless answer has little effect.
_OUTLIER = 8.0
_SAMPLES = 15


class RunningMean:
    """A mean of about the last 50 values. Threads may share it without a lock: concurrent values may be lost."""

    __slots__ = ("count", "value")

    def __init__(self, value: float, count: float = 0.0) -> None:
        """`value` is the prior, which counts as `count` values."""
        self.value = value
        self.count = count

    def note(self, value: float) -> None:
        """Add a value."""
        self.count = min(_REMEMBERED, self.count + 1.0)
        self.value += (min(value, _OUTLIER * self.value) - self.value) / self.count if self.value > 0 else value


class CallSizes:
    """Token statistics of one kind of calls. Threads may share it."""

    __slots__ = ("_cached_share", "_input", "_ratios", "output", "tokens_per_byte")

    def __init__(self, output: RunningMean | None = None) -> None:
        """`output`: the mean of output tokens, which may be shared with other objects."""
        self._ratios: tuple[float, ...] = ()
        self.tokens_per_byte: float | None = None
        """Tokens per byte of a request's JSON; None before any count. It is the median of the latest ones, so that one
        prompt with an image has no effect."""
        self._input = RunningMean(_INPUT_TOKENS)
        self.output = output if output is not None else RunningMean(_OUTPUT_TOKENS, 0.3)
        """Tokens of an answer."""
        self._cached_share = RunningMean(0.0)

    def input_tokens(self, body_bytes: int) -> float:
        """Estimate the tokens of the prompt in a JSON body of this size; for 0 bytes, return the recent mean."""
        if not body_bytes:
            return self._input.value
        return body_bytes * (self.tokens_per_byte or _TOKENS_PER_BYTE)

    def output_tokens(self, limit: int | None) -> float:
        """Estimate the tokens of an answer: the recent mean, at most the caller's limit."""
        return self.output.value if limit is None else min(self.output.value, float(limit))

    @property
    def uncached_share(self) -> float:
        """The share of a prompt's tokens that the provider does not read from its cache."""
        return 1.0 - self._cached_share.value

    def learn(
        self,
        *,
        body_bytes: int | None = None,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """Add the provider's counts of one call; None for unknown counts."""
        if input_tokens is not None and input_tokens > 0:
            self._input.note(input_tokens)
            per_byte = input_tokens / body_bytes if body_bytes and body_bytes >= _LEAST_BYTES else 0.0
            if _LEAST_PER_BYTE <= per_byte <= _MOST_PER_BYTE:
                self._ratios = (*self._ratios[1 - _SAMPLES :], per_byte)
                self.tokens_per_byte = sorted(self._ratios)[len(self._ratios) // 2]
            if cached_tokens is not None:
                self._cached_share.note(min(1.0, max(0.0, cached_tokens / input_tokens)))
        if output_tokens is not None and output_tokens > 0:
            self.output.note(output_tokens)

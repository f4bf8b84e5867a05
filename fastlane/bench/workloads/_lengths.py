"""How long prompts and answers are: drawn from truncated normal distributions, by their number and not by chance."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import NormalDist

from fastlane.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A number of tokens: always the same, or normally distributed and cut off at both ends."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ConfigurationError(
                f"lengths are 1 <= least <= most tokens, got {self.least} and {self.most}: give the range in this order"
            )

    @property
    def mean(self) -> float:
        """(least + most) / 2, which cutting off at both ends leaves as it is."""
        return (self.least + self.most) / 2

    @property
    def deviation(self) -> float:
        """(most - least) / 4: of the normal distribution before it is cut off at two of them; 0.88 of it after."""
        return (self.most - self.least) / 4

    @property
    def fixed(self) -> bool:
        """Whether all are alike."""
        return self.least == self.most

    def drawn(self, key: str) -> int:
        """Return the length that belongs to a key: always the same one."""
        if self.fixed:
            return self.least
        normal = NormalDist(self.mean, self.deviation)
        # From half a token below to half a token above, so that rounding gives the ends their share.
        low, high = normal.cdf(self.least - 0.5), normal.cdf(self.most + 0.5)
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        share = (int.from_bytes(digest) + 0.5) / 2**64
        return min(max(round(normal.inv_cdf(low + share * (high - low))), self.least), self.most)

    def __str__(self) -> str:
        return f"{self.least:,}" if self.fixed else f"{self.least:,}-{self.most:,}"


def exactly(tokens: int) -> TokenLengths:
    """Return lengths that are all the same."""
    return TokenLengths(least=tokens, most=tokens)

"""The forms of files that can be read."""

from typing import Literal

Format = Literal["auto", "conversations", "sharegpt", "mooncake", "burstgpt", "azure", "recording"]

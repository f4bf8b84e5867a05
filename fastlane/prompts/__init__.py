"""Lay out prompts for a provider's cache, and check them."""

from ..plays.prompt_cache.prompts import (
    Prompt as Prompt,
    lint as lint,
    session as session,
    stable as stable,
    volatile as volatile,
)

__all__ = ["Prompt", "lint", "session", "stable", "volatile"]

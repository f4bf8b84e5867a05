"""Lay out prompts for a provider's cache, check them, and trim long conversations."""

from ..plays.context_trimming.trimming import TrimmedContext as TrimmedContext, trim_context as trim_context
from ..plays.prompt_cache.prompts import (
    Prompt as Prompt,
    lint as lint,
    session as session,
    stable as stable,
    volatile as volatile,
)

__all__ = ["Prompt", "TrimmedContext", "lint", "session", "stable", "trim_context", "volatile"]

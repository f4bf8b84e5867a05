"""Prompts whose parts say how long they stay as they are, laid out so that a provider's cache can keep what does."""

from fastlane.protocol.prompt_marks import (
    Declared as Declared,
    Marked as Marked,
    session as session,
    stable as stable,
    unmarked as unmarked,
    volatile as volatile,
)

from ._arrange import arrange as arrange
from ._canonical import canonical as canonical, ordered_tools as ordered_tools
from ._lint import Finding as Finding, lint as lint
from ._prompt import Prompt as Prompt

__all__ = [
    "Declared",
    "Finding",
    "Marked",
    "Prompt",
    "arrange",
    "canonical",
    "lint",
    "ordered_tools",
    "session",
    "stable",
    "unmarked",
    "volatile",
]

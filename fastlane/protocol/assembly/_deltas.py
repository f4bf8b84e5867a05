"""What one event of a stream adds to an answer: pieces of text, each in a channel of its own."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["content", "tool_call", "reasoning", "refusal"]

Channel = tuple[int, ...]
"""Which text of the answer it is. Chat and completions: (choice,) for content, (choice, position) for arguments of a
tool call; Responses: (output_index, content_index) for content, (output_index,) for arguments."""

# What reasoning is called: DeepSeek, vLLM and llama.cpp have the first; OpenRouter, Cerebras and Groq the second.
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where a chat message has its reasoning."""


class Delta(NamedTuple):
    """A piece of text."""

    channel: Channel
    kind: Kind
    text: str
    name: str | None = None
    """The tool that is called, with the first piece of its arguments."""

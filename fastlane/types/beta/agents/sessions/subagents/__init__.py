"""`openai.types.beta.agents.sessions.subagents`, for type checkers."""

from openai.types.beta.agents.sessions.subagents import *

"""`openai.types.beta.agents.sessions.subagents.turns`, for type checkers."""

from openai.types.beta.agents.sessions.subagents.turns import *

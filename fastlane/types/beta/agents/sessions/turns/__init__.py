"""`openai.types.beta.agents.sessions.turns`, for type checkers."""

from openai.types.beta.agents.sessions.turns import *

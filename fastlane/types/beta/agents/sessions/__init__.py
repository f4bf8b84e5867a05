"""`openai.types.beta.agents.sessions`, for type checkers."""

from openai.types.beta.agents.sessions import *

"""`openai.types.beta.agents.environments`, for type checkers."""

from openai.types.beta.agents.environments import *

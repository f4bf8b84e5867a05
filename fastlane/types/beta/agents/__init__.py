"""`openai.types.beta.agents`, for type checkers."""

from openai.types.beta.agents import *

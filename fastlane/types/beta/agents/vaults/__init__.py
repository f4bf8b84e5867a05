"""`openai.types.beta.agents.vaults`, for type checkers."""

from openai.types.beta.agents.vaults import *

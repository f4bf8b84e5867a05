"""`openai.types.beta.agents.automations`, for type checkers."""

from openai.types.beta.agents.automations import *

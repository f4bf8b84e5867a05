"""`openai.types.beta`, for type checkers."""

from openai.types.beta import *

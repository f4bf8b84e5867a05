"""`openai.types.audio`, for type checkers."""

from openai.types.audio import *

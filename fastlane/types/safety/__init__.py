"""`openai.types.safety`, for type checkers."""

from openai.types.safety import *

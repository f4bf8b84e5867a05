"""`openai.types.conversations`, for type checkers."""

from openai.types.conversations import *

"""`openai.types.live`, for type checkers."""

from openai.types.live import *

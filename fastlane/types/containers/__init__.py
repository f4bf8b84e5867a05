"""`openai.types.containers`, for type checkers."""

from openai.types.containers import *

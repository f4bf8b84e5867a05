"""`openai.types.fine_tuning`, for type checkers."""

from openai.types.fine_tuning import *

"""`openai.types.fine_tuning.alpha`, for type checkers."""

from openai.types.fine_tuning.alpha import *

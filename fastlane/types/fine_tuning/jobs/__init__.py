"""`openai.types.fine_tuning.jobs`, for type checkers."""

from openai.types.fine_tuning.jobs import *

"""`openai.types.fine_tuning.checkpoints`, for type checkers."""

from openai.types.fine_tuning.checkpoints import *

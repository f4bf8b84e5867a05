"""`openai.types.evals`, for type checkers."""

from openai.types.evals import *

"""`openai.types.evals.runs`, for type checkers."""

from openai.types.evals.runs import *

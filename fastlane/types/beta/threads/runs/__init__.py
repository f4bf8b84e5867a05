"""`openai.types.beta.threads.runs`, for type checkers."""

from openai.types.beta.threads.runs import *

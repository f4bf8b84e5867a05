"""`openai.types.completion_usage`, for type checkers."""

from openai.types.completion_usage import *

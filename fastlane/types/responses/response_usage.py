"""`openai.types.responses.response_usage`, for type checkers."""

from openai.types.responses.response_usage import *

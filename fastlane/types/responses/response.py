"""`openai.types.responses.response`, for type checkers."""

from openai.types.responses.response import *

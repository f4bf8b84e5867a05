"""`openai.types.responses`, for type checkers."""

from openai.types.responses import *

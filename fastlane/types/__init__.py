"""`openai.types`, for type checkers."""

from openai.types import *

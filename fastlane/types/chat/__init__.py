"""`openai.types.chat`, for type checkers."""

from openai.types.chat import *

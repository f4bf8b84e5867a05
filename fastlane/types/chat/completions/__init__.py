"""`openai.types.chat.completions`, for type checkers."""

from openai.types.chat.completions import *

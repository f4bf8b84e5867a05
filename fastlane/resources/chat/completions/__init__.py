"""`openai.resources.chat.completions`, for type checkers."""

from openai.resources.chat.completions import *

"""`openai.types.chat.chat_completion`, for type checkers."""

from openai.types.chat.chat_completion import *

"""`openai.types.chat.parsed_chat_completion`, for type checkers."""

from openai.types.chat.parsed_chat_completion import *

"""`openai.types.chat.chat_completion_chunk`, for type checkers."""

from openai.types.chat.chat_completion_chunk import *

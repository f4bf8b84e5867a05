"""`openai.types.chat.chat_completion_message`, for type checkers."""

from openai.types.chat.chat_completion_message import *

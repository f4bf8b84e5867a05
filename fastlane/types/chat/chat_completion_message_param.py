"""`openai.types.chat.chat_completion_message_param`, for type checkers."""

from openai.types.chat.chat_completion_message_param import *

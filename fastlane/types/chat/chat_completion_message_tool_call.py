"""`openai.types.chat.chat_completion_message_tool_call`, for type checkers."""

from openai.types.chat.chat_completion_message_tool_call import *

"""`openai.types.chat.chat_completion_tool_param`, for type checkers."""

from openai.types.chat.chat_completion_tool_param import *

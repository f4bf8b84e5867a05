from openai.types.chat.chat_completion_tool_param import *

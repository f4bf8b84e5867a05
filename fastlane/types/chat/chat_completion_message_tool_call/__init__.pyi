from openai.types.chat.chat_completion_message_tool_call import *

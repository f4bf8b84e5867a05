from openai.types.chat.chat_completion_message_function_tool_call import *

from openai.types.chat.chat_completion_message_param import *

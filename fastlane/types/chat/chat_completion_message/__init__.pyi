from openai.types.chat.chat_completion_message import *

from openai.types.chat.chat_completion import *

from openai.types.chat.parsed_chat_completion import *

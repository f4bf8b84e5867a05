from openai.types.chat.chat_completion_chunk import *

from openai.types.chat.completion_create_params import *

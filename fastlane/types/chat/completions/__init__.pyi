from openai.types.chat.completions import *

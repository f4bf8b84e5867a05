from openai.types.chat import *

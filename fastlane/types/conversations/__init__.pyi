from openai.types.conversations import *

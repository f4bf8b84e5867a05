from openai.types.live import *

from openai.types.containers import *

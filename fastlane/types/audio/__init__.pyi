from openai.types.audio import *

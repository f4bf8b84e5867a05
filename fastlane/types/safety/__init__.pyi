from openai.types.safety import *

from openai.types.beta.chat import *

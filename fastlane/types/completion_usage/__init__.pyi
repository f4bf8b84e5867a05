from openai.types.completion_usage import *

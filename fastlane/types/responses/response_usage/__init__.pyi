from openai.types.responses.response_usage import *

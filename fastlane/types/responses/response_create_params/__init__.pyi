from openai.types.responses.response_create_params import *

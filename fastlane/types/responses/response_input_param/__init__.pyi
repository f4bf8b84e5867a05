from openai.types.responses.response_input_param import *

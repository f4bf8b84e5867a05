"""`openai.types.responses.response_input_param`, for type checkers."""

from openai.types.responses.response_input_param import *

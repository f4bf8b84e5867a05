"""`openai.types.responses.response_create_params`, for type checkers."""

from openai.types.responses.response_create_params import *

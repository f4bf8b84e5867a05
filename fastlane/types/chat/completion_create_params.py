"""`openai.types.chat.completion_create_params`, for type checkers."""

from openai.types.chat.completion_create_params import *

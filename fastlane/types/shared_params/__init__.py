"""`openai.types.shared_params`, for type checkers."""

from openai.types.shared_params import *

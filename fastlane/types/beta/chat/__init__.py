"""`openai.types.beta.chat`, for type checkers."""

from openai.types.beta.chat import *

"""`openai.types.beta.responses`, for type checkers."""

from openai.types.beta.responses import *

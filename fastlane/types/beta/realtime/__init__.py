"""`openai.types.beta.realtime`, for type checkers."""

from openai.types.beta.realtime import *

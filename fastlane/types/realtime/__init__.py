"""`openai.types.realtime`, for type checkers."""

from openai.types.realtime import *

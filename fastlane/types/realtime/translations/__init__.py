"""`openai.types.realtime.translations`, for type checkers."""

from openai.types.realtime.translations import *

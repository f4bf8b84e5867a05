"""`openai.lib.streaming`, for type checkers."""

from openai.lib.streaming import *

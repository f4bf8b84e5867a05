"""`openai.resources.realtime`, for type checkers."""

from openai.resources.realtime import *

"""`openai.lib.streaming.chat`, for type checkers."""

from openai.lib.streaming.chat import *

"""`openai.lib.streaming.responses`, for type checkers."""

from openai.lib.streaming.responses import *

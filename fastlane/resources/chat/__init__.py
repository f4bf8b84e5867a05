"""`openai.resources.chat`, for type checkers."""

from openai.resources.chat import *

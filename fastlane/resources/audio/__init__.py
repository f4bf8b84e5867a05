"""`openai.resources.audio`, for type checkers."""

from openai.resources.audio import *

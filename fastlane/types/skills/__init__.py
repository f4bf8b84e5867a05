"""`openai.types.skills`, for type checkers."""

from openai.types.skills import *

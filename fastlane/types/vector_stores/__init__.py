"""`openai.types.vector_stores`, for type checkers."""

from openai.types.vector_stores import *

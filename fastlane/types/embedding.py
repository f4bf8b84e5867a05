"""`openai.types.embedding`, for type checkers."""

from openai.types.embedding import *

"""`openai.types.admin`, for type checkers."""

from openai.types.admin import *

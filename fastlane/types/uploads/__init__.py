"""`openai.types.uploads`, for type checkers."""

from openai.types.uploads import *

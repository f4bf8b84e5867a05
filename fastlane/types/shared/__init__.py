"""`openai.types.shared`, for type checkers."""

from openai.types.shared import *

"""`openai.types.graders`, for type checkers."""

from openai.types.graders import *

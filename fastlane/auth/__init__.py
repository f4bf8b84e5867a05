"""`openai.auth`, for type checkers."""

from openai.auth import *

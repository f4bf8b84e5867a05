"""`openai.pagination`, for type checkers."""

from openai.pagination import *

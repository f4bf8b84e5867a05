"""`openai.resources`, for type checkers."""

from openai.resources import *

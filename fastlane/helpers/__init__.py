"""`openai.helpers`, for type checkers."""

from openai.helpers import *

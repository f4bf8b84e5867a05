"""`openai.resources.images`, for type checkers."""

from openai.resources.images import *

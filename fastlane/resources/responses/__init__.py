"""`openai.resources.responses`, for type checkers."""

from openai.resources.responses import *

"""`openai.resources.files`, for type checkers."""

from openai.resources.files import *

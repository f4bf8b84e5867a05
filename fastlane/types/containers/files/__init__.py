"""`openai.types.containers.files`, for type checkers."""

from openai.types.containers.files import *

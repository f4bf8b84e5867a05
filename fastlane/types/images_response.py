"""`openai.types.images_response`, for type checkers."""

from openai.types.images_response import *

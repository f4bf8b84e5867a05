"""`openai.types.create_embedding_response`, for type checkers."""

from openai.types.create_embedding_response import *

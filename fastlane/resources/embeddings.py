"""`openai.resources.embeddings`, for type checkers."""

from openai.resources.embeddings import *

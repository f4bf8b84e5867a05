"""`openai.resources.batches`, for type checkers."""

from openai.resources.batches import *

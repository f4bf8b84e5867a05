"""`openai.types.webhooks`, for type checkers."""

from openai.types.webhooks import *

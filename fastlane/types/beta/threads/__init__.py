"""`openai.types.beta.threads`, for type checkers."""

from openai.types.beta.threads import *

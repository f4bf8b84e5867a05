"""`openai.types.beta.chatkit`, for type checkers."""

from openai.types.beta.chatkit import *

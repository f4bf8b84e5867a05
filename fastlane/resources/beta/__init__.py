"""`openai.resources.beta`, for type checkers."""

from openai.resources.beta import *

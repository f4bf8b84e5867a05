"""`openai.resources.models`, for type checkers."""

from openai.resources.models import *

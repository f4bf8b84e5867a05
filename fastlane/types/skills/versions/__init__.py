"""`openai.types.skills.versions`, for type checkers."""

from openai.types.skills.versions import *

"""`openai.resources.moderations`, for type checkers."""

from openai.resources.moderations import *

"""`openai.types.admin.organization`, for type checkers."""

from openai.types.admin.organization import *

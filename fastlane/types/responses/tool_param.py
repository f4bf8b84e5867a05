"""`openai.types.responses.tool_param`, for type checkers."""

from openai.types.responses.tool_param import *

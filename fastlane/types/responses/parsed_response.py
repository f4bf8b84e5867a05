"""`openai.types.responses.parsed_response`, for type checkers."""

from openai.types.responses.parsed_response import *

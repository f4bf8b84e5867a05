"""`openai.types.shared_params.response_format_json_schema`, for type checkers."""

from openai.types.shared_params.response_format_json_schema import *

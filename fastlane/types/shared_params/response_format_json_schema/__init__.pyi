from openai.types.shared_params.response_format_json_schema import *

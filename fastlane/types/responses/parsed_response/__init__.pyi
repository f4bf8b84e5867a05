from openai.types.responses.parsed_response import *

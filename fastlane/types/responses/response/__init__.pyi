from openai.types.responses.response import *

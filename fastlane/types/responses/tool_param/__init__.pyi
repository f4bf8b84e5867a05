from openai.types.responses.tool_param import *

from openai.types.admin import *

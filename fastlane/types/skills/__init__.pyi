from openai.types.skills import *

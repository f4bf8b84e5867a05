from openai.types.responses import *

from openai.types.beta.responses import *

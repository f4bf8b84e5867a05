from openai.types.beta.threads import *

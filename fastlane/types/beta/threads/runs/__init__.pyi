from openai.types.beta.threads.runs import *

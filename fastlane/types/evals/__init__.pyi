from openai.types.evals import *

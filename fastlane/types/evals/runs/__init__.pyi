from openai.types.evals.runs import *

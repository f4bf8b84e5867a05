from openai.types.beta import *

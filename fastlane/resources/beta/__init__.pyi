from openai.resources.beta import *

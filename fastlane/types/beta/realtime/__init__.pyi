from openai.types.beta.realtime import *

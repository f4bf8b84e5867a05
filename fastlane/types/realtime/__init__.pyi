from openai.types.realtime import *

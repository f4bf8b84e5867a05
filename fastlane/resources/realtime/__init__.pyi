from openai.resources.realtime import *

from openai.lib.streaming import *

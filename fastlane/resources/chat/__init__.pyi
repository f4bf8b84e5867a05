from openai.resources.chat import *

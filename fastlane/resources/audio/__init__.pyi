from openai.resources.audio import *

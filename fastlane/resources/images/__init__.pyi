from openai.resources.images import *

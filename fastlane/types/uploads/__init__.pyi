from openai.types.uploads import *

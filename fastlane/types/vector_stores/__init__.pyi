from openai.types.vector_stores import *

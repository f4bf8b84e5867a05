from openai.types.embedding import *

from openai.types.create_embedding_response import *

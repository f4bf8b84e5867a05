from openai.resources.embeddings import *

from openai.pagination import *

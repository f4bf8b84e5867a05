from openai.types import *

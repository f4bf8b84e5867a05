from openai.auth import *

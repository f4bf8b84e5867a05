from openai.resources import *

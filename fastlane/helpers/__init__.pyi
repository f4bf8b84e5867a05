from openai.helpers import *

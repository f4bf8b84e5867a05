from openai.lib.azure import *

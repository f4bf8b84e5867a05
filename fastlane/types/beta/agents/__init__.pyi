from openai.types.beta.agents import *

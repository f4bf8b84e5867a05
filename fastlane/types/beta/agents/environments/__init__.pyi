from openai.types.beta.agents.environments import *

from openai.types.beta.agents.sessions import *

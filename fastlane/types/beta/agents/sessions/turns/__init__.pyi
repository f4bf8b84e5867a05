from openai.types.beta.agents.sessions.turns import *

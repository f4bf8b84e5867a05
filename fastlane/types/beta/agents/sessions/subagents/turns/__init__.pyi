from openai.types.beta.agents.sessions.subagents.turns import *

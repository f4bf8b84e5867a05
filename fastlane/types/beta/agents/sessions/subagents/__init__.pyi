from openai.types.beta.agents.sessions.subagents import *

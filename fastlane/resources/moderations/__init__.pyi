from openai.resources.moderations import *

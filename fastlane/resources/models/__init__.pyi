from openai.resources.models import *

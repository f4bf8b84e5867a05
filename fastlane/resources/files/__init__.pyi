from openai.resources.files import *

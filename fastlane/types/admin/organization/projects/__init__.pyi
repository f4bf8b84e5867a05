from openai.types.admin.organization.projects import *

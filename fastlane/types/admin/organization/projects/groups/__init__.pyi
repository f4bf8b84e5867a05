from openai.types.admin.organization.projects.groups import *

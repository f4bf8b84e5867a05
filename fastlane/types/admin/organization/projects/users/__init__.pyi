from openai.types.admin.organization.projects.users import *

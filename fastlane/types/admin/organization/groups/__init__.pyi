from openai.types.admin.organization.groups import *

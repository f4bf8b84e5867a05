from openai.types.admin.organization.users import *

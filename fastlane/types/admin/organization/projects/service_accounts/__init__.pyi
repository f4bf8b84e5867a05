from openai.types.admin.organization.projects.service_accounts import *

"""`openai.types.admin.organization.projects.service_accounts`, for type checkers."""

from openai.types.admin.organization.projects.service_accounts import *

"""`openai.types.admin.organization.workload_identity_providers`, for type checkers."""

from openai.types.admin.organization.workload_identity_providers import *

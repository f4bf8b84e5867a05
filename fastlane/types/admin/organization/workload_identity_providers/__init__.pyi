from openai.types.admin.organization.workload_identity_providers import *

"""The playbook: one module per play."""

"""The models that a call may be routed to, as data: where they are, what they can do, how good and fast they are."""

"""Configured and stored accounts, roles, and the keys of token issuers: what `auth`, which does no I/O, needs."""

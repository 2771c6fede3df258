"""Configured and stored accounts, roles, and the keys of token issuers, for `auth`."""

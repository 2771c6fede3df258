"""Accounts, role documents and the keys of token issuers: the facts that `auth` needs, configured and stored."""

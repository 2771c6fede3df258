"""Shared access signatures: of an account, of a table, by a stored access policy, by a user delegation key."""

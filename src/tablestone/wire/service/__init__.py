"""Requests with `comp` or `restype`: policies, service properties, statistics and user delegation keys, in XML."""

"""The steps of one request, from its address to its answer."""

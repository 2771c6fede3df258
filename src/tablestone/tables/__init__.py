"""The meaning of every operation. For a request, only this package reads and writes rows. Knows nothing of HTTP."""

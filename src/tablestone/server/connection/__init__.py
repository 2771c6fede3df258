"""One connection: HTTP, its limits, its certificate, the headers of a trusted proxy."""

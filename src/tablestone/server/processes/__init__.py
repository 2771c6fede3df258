"""The processes of a server: start, supervisor, workers, and the handover of connections between them."""

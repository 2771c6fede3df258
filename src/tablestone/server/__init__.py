"""The server: sockets, the ASGI application, start and stop. No other layer knows that HTTP arrives from a network."""

"""The explorer: web pages for the tables of any endpoint. It is a client and knows nothing of a server's internals."""

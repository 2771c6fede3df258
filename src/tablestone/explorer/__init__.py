"""The explorer: a web page for the tables of any endpoint. A client, which knows nothing of how a server works."""

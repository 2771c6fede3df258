"""Bearer tokens: which token is valid, the keys of its issuer, and the server as an issuer of its own."""

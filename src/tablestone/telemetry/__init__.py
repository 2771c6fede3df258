"""What an operator sees of a server: access log, warnings, metrics."""

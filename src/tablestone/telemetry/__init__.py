"""The operator's view of the server. Imports only `model`: it knows neither HTTP nor an engine."""

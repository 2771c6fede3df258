"""What an operator sees of a server: the access log, warnings, metrics, and the records behind them."""

"""What every operation means. The only caller of an engine; knows nothing of HTTP."""

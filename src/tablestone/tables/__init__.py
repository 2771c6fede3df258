"""The meaning of every operation. The only caller of an engine; knows nothing of HTTP."""

"""The benchmarks: Tablestone beside Azurite and beside the bare HTTP server, in the same run."""

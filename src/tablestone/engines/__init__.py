"""The engine contract and its engines: ordered byte keys, versions, one conditional commit."""

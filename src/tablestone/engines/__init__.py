"""The seam to storage and what stands behind it: ordered byte keys, versions, one conditional commit."""

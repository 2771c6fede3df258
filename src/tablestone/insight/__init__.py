"""What is hot and what scans: counts of requests by partition and query shape, their history, and the report."""

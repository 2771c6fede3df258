"""What is hot and what scans: counting requests by partition and query shape, their history, and the report."""

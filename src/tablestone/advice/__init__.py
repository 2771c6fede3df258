"""Advice on keys: from the description of a workload to sentences that say what to change. It does no I/O."""

"""Advice on keys: from a description of a workload to sentences that say what to change. Pure: nothing is read here."""

"""The engine for any number of servers on any number of machines: Apache Cassandra (docs/guides/cassandra.md).

A partition of the contract is a partition of the table `rows`; a write set is one conditional batch in it (`commit`).
Cassandra orders partitions by a hash, so the engine keeps a directory of them in order (`directory`).
"""

"""The archive: the record of changes and base copies in an object store, written by a worker and read by `restore`."""

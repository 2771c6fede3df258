"""The service as values: names, EDM types, entities and their stored text, operations, results, errors. No I/O."""

"""The `$filter` language: from text to a tree, from the tree to a predicate and to key ranges. No HTTP, no engine."""

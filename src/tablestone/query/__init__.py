"""The `$filter` language: text to tree, tree to predicate, tree to key ranges. No HTTP, no engine."""

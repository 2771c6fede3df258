"""Who is asking, and may they: values only, no engine, no I/O."""

"""Entities and tables in Atom, the form of versions before 2015-12-11."""

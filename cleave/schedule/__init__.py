"""Operator scheduling: from a candidate and one binding of its symbols to tile programs with bindings."""

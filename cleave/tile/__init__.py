"""Tile IR: what one block of threads does, and the plan that binds its symbols."""

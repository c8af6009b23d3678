"""Figures and tables from records: one pure function each, drawn the same, byte for byte, wherever it runs."""

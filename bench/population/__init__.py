"""Populations of programs that nobody chose: every architecture of a library, at a small size."""

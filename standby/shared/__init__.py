"""Shared modules, which every other folder may import; they import none of the others."""

"""Generators of the documentation pages that come from the program's own tables; not part of the package."""

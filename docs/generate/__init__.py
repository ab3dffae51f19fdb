"""Pages of the documentation that are made from the program's own tables; nothing of this is shipped."""

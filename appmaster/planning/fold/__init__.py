"""How events change the view. Only `apply` is for others. Pure."""

"""What is decided about task records: the table of rules, and what each of them decides. Pure."""

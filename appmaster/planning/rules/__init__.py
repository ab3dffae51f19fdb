"""Decisions about task records: the table of rules, and what each rule decides. Pure."""

"""Containers that are asked for, and given back. Pure."""

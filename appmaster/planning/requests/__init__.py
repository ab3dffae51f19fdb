"""Requests for containers, and their release. Pure."""

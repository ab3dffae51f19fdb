"""Commands about a whole cluster: its cells and candidates, its hosts, its credentials."""

"""What every other folder may import; this one imports none of them."""

"""How many workers may be removed or replaced at once, and when."""

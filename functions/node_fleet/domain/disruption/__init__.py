"""Workers that are replaced although they run: what makes one outdated, how many may be removed at once, and when."""

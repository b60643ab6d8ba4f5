"""Whether pods fit on nodes."""

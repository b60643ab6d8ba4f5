"""Values that every rule shares: what was read, what is remembered, what an operation has done so far."""

"""One module for each task state; each parses its payload, calls one function, and answers."""

"""One module for each outside system; AWS and HTTP errors become ours here and go no further."""

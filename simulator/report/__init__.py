"""The results of a simulation: its runs as rows, the workflow as a picture, one HTML page."""

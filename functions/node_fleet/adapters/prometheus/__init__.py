"""Prometheus: the PromQL queries, the HTTP client, and the reader that makes domain values of the answers."""

"""Prometheus: the queries, the HTTP API, and the reading that they give."""

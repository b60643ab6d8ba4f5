"""Strategies turn signals into a desired change: by fixed thresholds, or adaptively by pod requests."""

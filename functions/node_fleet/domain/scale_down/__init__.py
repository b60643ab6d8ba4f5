"""Removing workers: what is known of each, which are eligible, and how a drain ends."""

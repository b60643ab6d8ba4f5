"""Scenarios: the files, what they may say, and the events that they cause."""

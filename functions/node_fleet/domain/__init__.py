"""The rules: pure functions of what they are given. Standard library only; no clock, no network, no environment."""

"""Interruption notices of AWS: what they announce, how the fleet responds, and how a notice is closed."""

"""Decides how many workers are wanted, and why: pure functions of the snapshot, the memory and the policy."""

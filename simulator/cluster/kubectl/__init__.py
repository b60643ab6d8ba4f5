"""kubectl against the simulated cluster, in process."""

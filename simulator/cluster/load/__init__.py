"""The load on the simulated cluster: applications, curves and what they use."""

"""The controllers, the scheduler and the kubelets of the simulated cluster."""

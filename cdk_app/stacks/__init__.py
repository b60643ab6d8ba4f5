"""One stack a module: network, cluster, autoscaler, observability."""

"""Fakes of the services around the cluster: Prometheus, Alertmanager, Slack, the server's shell."""

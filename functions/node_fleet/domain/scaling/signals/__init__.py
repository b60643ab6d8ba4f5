"""The signals of a decision: pending pods, CPU and memory, custom metrics, idle time."""

"""What is weighed for a decision: pending pods, load, custom metrics, idleness."""

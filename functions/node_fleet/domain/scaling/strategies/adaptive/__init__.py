"""The strategy `adaptive`: sizes the fleet by pod requests, and learns the headroom and the scale-down delay."""

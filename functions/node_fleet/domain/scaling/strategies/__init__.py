"""How the signals become a number of workers: fixed thresholds, or adaptive."""

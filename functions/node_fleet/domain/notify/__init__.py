"""Messages to people, and the alerts that start a run, as data."""

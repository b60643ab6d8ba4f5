"""The words that mark standby workers: values of the EC2 tag Standby, and the names of their operations."""

READY, STARTED, FAILED, KEPT = "ready", "started", "failed", "kept"
"""Values of the tag Standby: stopped and ready to be started; joined again after its start; did not join again;
runs, because EC2 did not stop it."""
STANDBY = "standby"
"""The rule of a decision that only changes the number of standby workers, and the key of its back-off."""
PREFIX = f"{STANDBY}-"
"""How the id of an operation begins that only changes the number of standby workers."""
STOPPED_STATES = ("stopping", "stopped")

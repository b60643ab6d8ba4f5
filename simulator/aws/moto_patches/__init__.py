"""Every place where the simulator changes moto and botocore. An upgrade that does not fit fails here."""

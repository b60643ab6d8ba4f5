"""The back-test: a load trace replayed through the deployed decision code and a model of the fleet's capacity."""

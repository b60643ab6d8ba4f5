"""The operator's commands. They show and ask; the rules live in functions/, the simulator in simulator/."""

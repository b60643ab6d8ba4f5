"""The operator's commands. They print and ask; the rules are in functions/, the simulator is in simulator/."""

"""The rooms of the simulated K3s cluster: objects, scheduler, controllers, kubelets, budgets, load.

`simulator.cluster.model.SimulatedCluster` composes them; nothing here knows of AWS.
"""

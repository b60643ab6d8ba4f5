"""The rooms of the simulated K3s cluster: objects, scheduler, controllers, kubelets, budgets, load.

`simulator.cluster.model.World` composes them; nothing here knows of AWS.
"""

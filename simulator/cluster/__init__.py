"""The simulated K3s cluster: API objects, scheduler, controllers, kubelets, disruption budgets, load, kubectl.

`simulator.cluster.model.SimulatedCluster` composes them. No module here imports an AWS client.
"""

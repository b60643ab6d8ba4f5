"""The simulator: a virtual clock, a simulated K3s cluster, fakes of the services around it, and moto as AWS.

It runs exactly what would be deployed; nothing under functions/ may know of it.
"""

"""The simulator: a virtual clock, a K3s world with its faces, and moto as the AWS.

It runs exactly what would be deployed; nothing under functions/ may know of it.
"""

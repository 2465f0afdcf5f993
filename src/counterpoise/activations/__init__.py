"""The neuron's activation functions, each with the constants the theory needs.

It imports only `common`.
"""

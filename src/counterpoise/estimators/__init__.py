"""The scikit-learn estimators: `GroupDRONeuron`, `GroupDRONeuronCV`, and the frontier of a fit.

They import `assess`, `solver`, `storage` and the rooms below them.
"""

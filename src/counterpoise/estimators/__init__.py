"""The scikit-learn estimators `GroupDRONeuron` and `GroupDRONeuronCV`, and the frontier.

They import `assessment`, `solver`, `storage` and the rooms below them.
"""

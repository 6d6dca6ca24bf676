"""Real data, split into clients: one file per data set, `registry` to choose by name.

`federated.FederatedData` is what every one of them comes as. None needs torch.
"""

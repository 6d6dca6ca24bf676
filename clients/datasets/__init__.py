"""Real data, split into clients: one file per data set, `registry` to choose by name.

`federated.FederatedData` is what every one of them comes as. A data set reads its files into
`records.Records`, prepares them for models as `records.PooledData`, and a partitioner of
`partition` says which client holds which of these. None needs torch.
"""

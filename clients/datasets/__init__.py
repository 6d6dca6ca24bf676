"""Data sets divided among clients: one file per data set, `registry` to choose by name.

A data set reads its files into `records.Records` and prepares them for models as
`records.PooledData`; a partitioner of `partition` assigns the samples to clients, and the result is
a `federated_data.FederatedData`. Nothing here needs torch.
"""

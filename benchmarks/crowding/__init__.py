"""The rule of crowded residuals and attackers that know it, in NumPy alone.

`python -m benchmarks.crowding --seeds 100 101 102` plays FedAvg and the references `own`, `travel`,
`crowd` and `peers` on scikit-learn's digits, and prints mean accuracies with their standard errors
and the paired differences to FedAvg without attackers. `--vectors FILE` holds a rule to the cases
of a file such as `tests/vectors/crowd.json` instead; `--vectors tests/vectors/crowd.json --answer
peers` prints `tests/vectors/peers.json`. Written from the documents: nothing of the product is
imported, so that two programs that share no line have to agree.

60 clients share the training digits, each class by shares from Dirichlet(.5); softmax, 12 members,
18 trainers, 5 steps of 16 samples, rate 1, 40 rounds; 30 % of the clients attack whenever they are
active, each knowing its colluders, all models, and what honest clients published before. `--clip`
shortens updates to the length that two fifths of the round's do not exceed. An accuracy is the mean
of the last five rounds.
"""

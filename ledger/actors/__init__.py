"""Trainers and members: steps from what they can see to what they do, without torch.

`view` says what one can see of a round, `participants` what follows for an honest client,
`driver` carries it out against a chain, a blob store and a mailbox. A simulation drives all
actors in one process, a worker one of them: the steps are the same. Time comes in as an argument.
"""

"""The paper as pure functions: frozen dataclasses and free functions, no disk, network or clock.

Start reading in `algorithms.py`; `rounds.py` is the executable specification of the contract. What
became of each piece of the paper (as data in `paper_map.py`): the function that computes it, the
transaction in which the contract enforces it, and the event that records it.

========================  ==================================  ===================  =================
paper                     function                            contract             event
========================  ==================================  ===================  =================
Eq. localUpdate2          clients.local_sgd.LocalTrainer      -                    -
Eq. computeScore, member  scoring.squared_distance            -                    -
Eq. computeScore          scoring.committee_distances         decide               RoundDecided
Eq. aggregation           aggregation.aggregate               decide               RoundDecided
Eq. globalUpdate          aggregation.aggregate               decide               RoundDecided
Ranking by score          selection.rank                      decide               RoundDecided
Selection I, II           selection.select                    decide               RoundDecided
Selection III (ours)      scoring.spread_threshold            decide               RoundDecided
Election                  election.elect                      decide               RoundDecided
CCP 1, broadcast          algorithms.Member.broadcast_scores  -                    -
CCP 1, total scores       counting.count_scores               -                    -
CCP 2, primary            consensus.primary_place             decide               RoundDecided
CCP 3, own set            decision.decide                     decide               -
CCP 4, request            algorithms.Member.request           decide               -
CCP 5, replies            algorithms.Member.reply             decide               -
CCP 6, quorum             consensus.quorum                    decide               RoundDecided
CCP 7, new committee      election.elect                      decide               RoundDecided
CCP 8, global model       rounds.decide                       decide               RoundDecided
Algorithm 1               algorithms.committee_consensus      decide               RoundDecided
Algorithm 2               algorithms.voting                   decide               RoundDecided
Algorithm 3               algorithms.training                 -                    -
Algorithm 3, clients      rounds.register_clients             register_clients     ClientsRegistered
Algorithm 3, committee    sampling.first_committee            register_clients     LedgerOpened
Algorithm 3, updates      counting.collect_updates            commit_updates       UpdatesCommitted
Algorithm 3, sampling     sampling.sample_trainers            -                    -
No consensus (ours)       sampling.redrawn_committee          abandon_round        RoundAbandoned
Two votes (ours)          rounds.report_equivocation          report_equivocation  ClientBanned
========================  ==================================  ===================  =================

Functions are in this package where no other is named. Nothing on the chain can know how a client
trains, what a member computes or whom it hears: of those, it enforces what follows from signatures
and from the ranking.
"""

"""The paper as pure functions: frozen dataclasses and free functions, no disk, network or clock.

Start reading in `judgement.py`, which members vote by and audits compare with; `algorithms.py` has
the paper's schedule in its line order, and `rounds.py` is the executable specification of the
contract. The table (as data in `paper_map.py`) has for each piece of the paper the function that
computes it, the transaction in which the contract enforces it, and the event that records it.

========================  ===========================================  ===================  =================
paper                     function                                     contract             event
========================  ===========================================  ===================  =================
Eq. localUpdate2          clients.training.plain_trainer.PlainTrainer  -                    -
Eq. computeScore, member  rules.distance.squared_distance              -                    -
Eq. computeScore          ranking.mean_distances                       decide               RoundDecided
Eq. aggregation           rules.aggregation.aggregate                  decide               RoundDecided
Eq. globalUpdate          rules.aggregation.aggregate                  decide               RoundDecided
Ranking by score          ranking.rank                                 decide               RoundDecided
Selection I               rules.selection.nearest                      decide               RoundDecided
Selection II              rules.selection.farthest                     decide               RoundDecided
Selection III (ours)      rules.selection.below_two                    decide               RoundDecided
Election                  ranking.candidates                           decide               RoundDecided
CCP 1, broadcast          algorithms.VotingMember.publish_scores       -                    -
CCP 1, total scores       judgement.rank_trainers                      decide               RoundDecided
CCP 2, primary            consensus.primary_seat                       decide               RoundDecided
CCP 3, own set            judgement.judge                              -                    -
CCP 4, request            algorithms.VotingMember.request              decide               -
CCP 5, replies            algorithms.VotingMember.reply                decide               -
CCP 6, quorum             consensus.replies_needed                     decide               RoundDecided
CCP 7, new committee      ranking.elect                                decide               RoundDecided
CCP 8, global model       rounds.decide                                decide               RoundDecided
Algorithm 1               algorithms.committee_consensus               decide               RoundDecided
Algorithm 2               algorithms.voting                            decide               RoundDecided
Algorithm 3               algorithms.training                          -                    -
Algorithm 3, clients      rounds.register_clients                      register_clients     ClientsRegistered
Algorithm 3, committee    sampling.drawn_committee                     register_clients     LedgerOpened
Algorithm 3, updates      rounds.commit_updates                        commit_updates       UpdatesCommitted
Algorithm 3, sampling     sampling.sample_trainers                     -                    -
Domain (ours)             ledger_state.domain_of                       -                    LedgerDeployed
Closing block (ours)      inputs.round_closing                         commit_updates       -
No consensus (ours)       rounds.abandon_round                         abandon_round        RoundAbandoned
Two statements (ours)     rounds.report_equivocation                   report_equivocation  ClientBanned
========================  ===========================================  ===================  =================

Functions are in this package where no other is named. Nothing on the chain can know how a client
trains, what a member computes or whom it hears: of those, it enforces what follows from signatures
and from the ranking.
"""

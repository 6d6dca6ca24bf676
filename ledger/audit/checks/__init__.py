"""The ten checks of an audit: codes, sentences, and the functions that judge.

A check is a function of a round and its evidence. It yields contradictions, missing inputs,
findings and counts, and writes nowhere.
"""

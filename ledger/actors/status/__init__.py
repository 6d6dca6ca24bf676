"""Where an open round stands for whoever looks on: stage, everybody's part, and who is late.

Pure: it follows from the chain, from genuine envelopes and from the time, never from anybody's
word about itself.
"""

"""The ten steps of an audit, each comparing what is recorded with what members call."""

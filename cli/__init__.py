"""The command `cmfl`: parse, call one function, print. Other rooms are imported inside commands."""

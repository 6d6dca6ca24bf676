"""The command `cmfl`: parse, call one function, print; commands import other packages inside."""

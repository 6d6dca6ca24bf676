"""The JSON shape of every answer about a history: REST, `--json` and the client in `api/client`.

A response is a plain `dict` at run time; mypy checks its keys and values where it is built, and
pydantic derives the OpenAPI schema from it and validates what a remote service sends.
"""

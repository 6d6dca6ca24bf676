"""HTTP: parameters, caching, access control, problems, middleware and the OpenAPI document."""

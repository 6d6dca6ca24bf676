"""`cmfl demo`: real data, malicious clients, enforced rounds, an audit, and the service."""

"""Onboarding of an owner: key, registration, own data, and checks before joining a run."""

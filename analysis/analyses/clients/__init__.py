"""Analyses by client, class or corruption."""

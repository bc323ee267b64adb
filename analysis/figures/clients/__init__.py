"""Figures by client, class or corruption."""

"""Losses, one a module: what a client minimises on its mini-batch."""

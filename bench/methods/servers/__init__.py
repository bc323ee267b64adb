"""Servers, one a module: the next global model, from all uploads."""

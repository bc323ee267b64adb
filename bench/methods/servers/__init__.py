"""Servers: the next global model, computed from all uploads. Each module registers its servers."""

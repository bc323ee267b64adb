"""Searches by a protocol: bases are searched, then each method sweeps its own values at its base's best trials."""

"""Back ends of local training, one a module: the same numbers up to rounding, at different speeds."""

"""How often verdicts are wrong: simulations, and tables of the docs."""

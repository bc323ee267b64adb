"""Losses: the objective of a client on a mini-batch. Each module registers its losses."""

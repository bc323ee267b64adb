"""The engine: flat parameters, gradients, local training, rounds, random streams, checkpoints."""

"""The models that FedFlat knows by name. Each module registers its choices: a new file is a new model."""

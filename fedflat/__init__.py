"""FedFlat's face: the command line and the Python API."""

"""Building blocks of networks, which several architectures use."""

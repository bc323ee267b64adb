"""What is added to the gradient: one correction a module."""

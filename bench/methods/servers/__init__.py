"""How uploads become the next model: one server step a module."""

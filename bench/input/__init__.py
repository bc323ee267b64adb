"""Input from users: strict YAML, frozen models, user-defined files, and errors of one line."""

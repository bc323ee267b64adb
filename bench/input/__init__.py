"""Input from users: strict YAML, frozen models, user-defined files and code, and errors of one line."""

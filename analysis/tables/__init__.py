"""Tables: YAML layouts over an experiment, filled from tidy files."""

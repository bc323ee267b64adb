"""What users give: strict YAML, frozen models, their own files and code, and their mistakes as one line."""

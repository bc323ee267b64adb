"""Code of users: how configurations name it, whether it is trusted, and how it is executed."""

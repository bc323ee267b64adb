"""`make audit`: the licences and hashes of the packages that `make env` installs, and their known vulnerabilities."""

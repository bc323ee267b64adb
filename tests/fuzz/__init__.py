"""Any input is accepted, or refused in one line, within seconds. `make fuzz` tries more inputs than the other tests."""

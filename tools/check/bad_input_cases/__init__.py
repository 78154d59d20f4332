"""Bad inputs by class, for every entry point; see tools/check/bad_inputs.py."""

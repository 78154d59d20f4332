"""Bad inputs by class, for every entry point; see tools/bad_inputs.py."""

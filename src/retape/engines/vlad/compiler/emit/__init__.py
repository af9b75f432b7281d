"""From the intermediate form to C."""

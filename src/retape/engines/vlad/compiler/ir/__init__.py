"""The compiler's intermediate form."""

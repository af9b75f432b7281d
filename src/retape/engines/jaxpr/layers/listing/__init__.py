"""What a gradient keeps, value by value."""

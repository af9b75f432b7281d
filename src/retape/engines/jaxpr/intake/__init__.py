"""What a traced program is turned into before any pass: rules opened, effects out."""

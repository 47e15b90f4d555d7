"""All settings of a broker: validation, effective values, changes and description."""

"""The only place that knows PySpark."""

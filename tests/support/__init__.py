"""What the tests, the tools and the benchmarks of Cordwood share; not part of the package."""

"""What tests of logs need; shipped, so that users can test with it too."""

"""What names a module: the model, its rules, and how a file is read."""

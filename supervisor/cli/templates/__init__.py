"""The sources that `stdiod new` begins a module with, one for each language."""

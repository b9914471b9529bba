"""The programs that stdiod is measured beside: where they are, how they are run."""

"""The `stdiod` command: verbs that run a daemon, and verbs that speak with one."""

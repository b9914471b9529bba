"""What `stdiod doctor` looks at: each file examines one thing and returns findings."""

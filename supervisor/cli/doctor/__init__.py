"""The examinations of `stdiod doctor`: each file examines one area and returns findings."""

"""Keep hold of everything a module starts, so that all of it can be ended.

    ladder       which rung this machine allows: cgroup2, else subreaper, else process_group
    cgroup2      a cgroup per instance
    brand        the number that all processes of an instance inherit
    orphans      the processes that the daemon adopts as subreaper; the rung below cgroup2
    contained    what a rung gives for each instance; the lowest rung
    procfs, hunt what /proc tells, and killing what runs away from it
    guardian     the process that kills all of it when the daemon dies

`procfs`, `hunt`, `ledger` and `guardian` use the standard library only: the guardian runs without
site-packages.
"""

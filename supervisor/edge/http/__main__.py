from supervisor.edge.http.program import main

main()

"""Benchmarks: workloads by librdkafka in processes of their own, beside Apache Kafka in the same run.

    from rafka_lab.bench.run import frame, run_suites

    run = run_suites(["produce", "fetch"], quick=True, peer="kafka")  # a `Run`: figures, ratios, checks, targets
    frame(run)                                                        # the figures as a DataFrame

`rafka-lab bench` does the same in a terminal. Nothing is imported here: client processes must start quickly.
"""

"""What the exit codes of the verbs that run rollouts mean."""

EXIT_CODES = """\b
Exit codes
  0    complete: every rollout has a result, or a failure that no further attempt would change
  1    a fault: of gym_ray, of Ray, of the disk
  2    settings or input are wrong; nothing was sent
  3    incomplete: some rollouts have neither, and can be run again
  4    complete, but an environment server did not aggregate
  130  interrupted (SIGINT); 143 terminated (SIGTERM)
"""

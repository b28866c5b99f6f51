"""What the exit codes of the verbs that run rollouts mean."""

EXIT_CODES = """\b
Exit codes
  0    complete: every rollout has a result, or a failure that no further attempt would change; or --min-coverage is met
  1    a fault: of gym_ray, of Ray, of the disk; or a strict run that is stuck
  2    settings or input are wrong, or the run in the folder is another one; nothing was sent
  3    incomplete: some rollouts have neither; --resume runs them
  4    complete, but an environment server did not aggregate
  130  interrupted (SIGINT); 143 terminated (SIGTERM); 129 its terminal has gone (SIGHUP)
"""

"""`python -m gym_ray`: the command line where no script directory is on the PATH."""

from gym_ray.cli.main import main

main()

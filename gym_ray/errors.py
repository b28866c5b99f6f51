"""What a caller of gym_ray can catch, drawn by what they can do about it.

Every class takes one message, so it survives the pickling that Ray does between processes. A fault of an environment
server is never one of these: it is a record.
"""


class GymRayError(Exception):
    """The root: catch this to catch everything that gym_ray raises on purpose."""


class ConfigError(GymRayError, ValueError):
    """A setting, flag or deployment config is wrong: correct it and start again."""


class InputError(GymRayError, ValueError):
    """An input row or file cannot be used; the message names the file and the line."""


class RoutingError(GymRayError, ValueError):
    """A row names a server, agent or source that the deployment does not offer."""


class AgentWithoutEnvironmentServerError(RoutingError):
    """No environment server fronts the agent of a row."""


class AmbiguousEnvironmentServerError(RoutingError):
    """Several environment servers front the agent of a row."""


class DeploymentUnreachableError(GymRayError, ValueError):
    """The head server cannot be read: start it, or name another with --head or --deployment."""


class ClusterError(GymRayError, RuntimeError):
    """Ray cannot give what the run needs: free resources, connect elsewhere, or ask for fewer shards."""


class DriverLostError(ClusterError):
    """The driver actor died; a run with a folder goes on with another one, or is continued with --resume."""


class ShardLostError(GymRayError, RuntimeError):
    """Every shard actor died and could not be replaced; what was acknowledged is on disk."""


class RunFolderError(GymRayError, RuntimeError):
    """The output folder holds another run, or is not the same folder for caller and driver."""


class ResumeRefusedError(RunFolderError):
    """The run in the output folder is not the one that the settings describe; the message names what differs."""


class WriterSupersededError(GymRayError, RuntimeError):
    """Another writer has opened this shard since; nothing was written."""


class RecordingError(GymRayError, RuntimeError):
    """Records cannot be written (disk full, read-only, I/O error); earlier records are intact."""


class AggregationError(GymRayError, RuntimeError):
    """At least one environment server did not aggregate; the partial metrics file is on disk."""


class IncompleteRunError(GymRayError, RuntimeError):
    """The run ended with rollouts still owed; the same command with --resume continues it."""

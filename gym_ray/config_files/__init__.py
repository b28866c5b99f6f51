"""Settings of a run from everywhere they can be given, and where each came from.

Later wins: defaults, YAML files in order, environment variables `GYM_RAY_<FIELD>`, overrides, flags. A YAML file may be
shared with a deployment: its server instances and reserved keys are not ours and pass. A key that is neither theirs nor
ours is a mistake.

Source: protocol §1.1, §1.4 (the shared namespace), §10.2 (override grammar).
"""

"""The collector of nemo-gym on the same work. Runs under a Python that has nemo-gym; imports nothing of this package.

PEER_PYTHON benchmarks/peer_collector.py --head 127.0.0.1:11000 -i rows.jsonl -o out/rollouts.jsonl --concurrency 256
"""

import argparse
import json
import os
import urllib.request
from pathlib import Path


def main() -> None:
    """Point nemo-gym at the head server, then let it collect as it does by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", required=True)
    parser.add_argument("-i", "--input", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--concurrency", type=int, default=256)
    args = parser.parse_args()
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)

    with urllib.request.urlopen(f"http://{args.head}/global_config_dict_yaml") as response:
        os.environ["NEMO_GYM_CONFIG_DICT"] = json.load(response)  # read once, at the first import

    import uvloop  # noqa: PLC0415 - a dependency of nemo-gym
    from nemo_gym.rollout_collection import (  # type: ignore[import-not-found]  # noqa: PLC0415
        RolloutCollectionConfig,
        RolloutCollectionHelper,
    )

    config = RolloutCollectionConfig(
        input_jsonl_fpath=args.input,
        output_jsonl_fpath=args.output,
        num_samples_in_parallel=args.concurrency,
        disable_health_check=True,  # reads every record once more after the run; no other side does that
    )
    uvloop.run(RolloutCollectionHelper().run_from_config(config))


if __name__ == "__main__":
    main()

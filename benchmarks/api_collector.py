"""gym_ray as a program uses it: `RolloutRunner.collect()` without the command line. Takes the flags of the others.

python -m benchmarks.api_collector --head 127.0.0.1:11000 -i rows.jsonl -o out/rollouts.jsonl --concurrency 256
"""

import argparse
import asyncio

from gym_ray import RolloutCollectionConfig, RolloutRunner


async def collect(config: RolloutCollectionConfig) -> None:
    """The whole job, once."""
    async with RolloutRunner(config) as runner:
        await runner.collect()


def main() -> None:
    """Parse the flags and collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", required=True)
    parser.add_argument("-i", "--input", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--shards", type=int, default=2)
    args = parser.parse_args()
    config = RolloutCollectionConfig(
        head=args.head,
        input_jsonl_fpath=args.input,
        output_jsonl_fpath=args.output,
        num_samples_in_parallel=args.concurrency,
        shards=args.shards,
    )
    asyncio.run(collect(config))


if __name__ == "__main__":
    main()

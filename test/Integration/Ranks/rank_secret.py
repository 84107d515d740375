#!/usr/bin/env python3
"""rank_secret.py FOLDER LAUNCHER...: ranks that meet over UCX have the same secret, or none; one with another secret ends the start. The
secret itself is not told."""
import pathlib
import sys
import tempfile

import launched_ranks
import processes

RANKS = 2  # of one agent, which ends the second when the first has failed


def main():
    inputs, launcher = pathlib.Path(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        data, packages = launched_ranks.prepare(inputs, pathlib.Path(folder), 8, (0,), RANKS)

        def run(secret):
            process = processes.start(*launcher, "-n", RANKS, "sh", "-c", f'{secret} exec "$@"', "sh", "memopt-run", packages[0], data,
                                      "--transport=ucx", "--steps=1", "--quiet")
            return launched_ranks.end(process)

        code, _, errors = run("MEMOPT_RANK_SECRET=river")
        assert code == 0, errors
        refusal = "does not prove that it has the MEMOPT_RANK_SECRET of rank 0"
        for secret in ('MEMOPT_RANK_SECRET="river$RANK"', '[ $RANK = 0 ] || export MEMOPT_RANK_SECRET=river;'):
            code, lines, errors = run(secret)
            assert code != 0 and any(refusal in line for line in lines), (secret, errors)
            assert "river" not in errors, errors


main()

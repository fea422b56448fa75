"""Asks weir before each of six jobs, through redis-py (Debian: python3-redis).

    weir serve --config weir.yaml
    python3 redis-python.py
"""

import os
import random
import sys
import time

import redis

MAX_FAILURES = 5
BACKOFF = 0.05  # seconds, after the first failure; it doubles with each


def admit(weir, job):
    """Returns once the job may begin, and how many more may at once."""
    failures = 0
    while True:
        try:
            allowed, _, remaining, retry_ms, _ = weir.execute_command("WEIR.CHECK", "api", "alice")
        except redis.RedisError:
            if failures == MAX_FAILURES:
                raise
            print(f"job {job}: no decision, backing off", flush=True)
            pause = BACKOFF * 2**failures
            time.sleep(pause + random.uniform(0, pause))  # not all at the same moment
            failures += 1
            continue
        if allowed:
            return remaining
        if retry_ms < 0:
            sys.exit(f"job {job}: refused, and waiting cannot help")
        print(f"job {job}: refused, waiting {retry_ms} ms", flush=True)
        time.sleep(retry_ms / 1000)


host, _, port = os.environ.get("WEIR_ADDR", "127.0.0.1:6380").rpartition(":")
# If weir has clients: username="checkout", password=the client's token.
weir = redis.Redis(host=host, port=int(port), socket_timeout=1)
for job in range(1, 7):
    left = admit(weir, job)
    print(f"job {job}: done, {left} left", flush=True)  # here goes the work

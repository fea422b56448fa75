"""Stays inside a provider's quota: asks weir before each call, and reports what the call has used.
It needs no packages.

    weir serve --config budget.yaml
    python3 budget-python.py
"""

import http.client
import json
import os
import random
import sys
import time

MAX_FAILURES = 5
BACKOFF = 0.05  # seconds, after the first failure; it doubles with each

# How urgent each call is, and what it costs: by its method, of several calls in one request by their methods, or, if
# the cost is known only afterwards, the most that it can be.
CALLS = [
    {"class": "realtime", "method": "eth_getBlockByNumber"},
    {"class": "backfill", "methods": ["eth_getLogs", "eth_blockNumber"]},
    {"class": "backfill", "method": "eth_getLogs"},
    {"class": "realtime", "method": "eth_getLogs"},
    {"class": "realtime", "cost": 40},
    {"class": "realtime", "method": "eth_call"},
]


def provider(number):
    """Here goes the call. Returns the cost if it is known only now, else None: it is that of the method."""
    if number == 5:
        return 15
    if number == 6:
        raise ConnectionRefusedError
    return None


class NoDecision(Exception):
    """weir could not be reached, or could not decide."""


class Weir:
    def __init__(self, address, token=None):
        host, _, port = address.rpartition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=1)
        self.headers = {"Content-Type": "application/json"}
        if token:  # if weir has clients
            self.headers["Authorization"] = f"Bearer {token}"

    def post(self, path, fields):
        """Returns weir's answer."""
        try:
            self.connection.request("POST", path, json.dumps(fields), self.headers)
            response = self.connection.getresponse()
            answer = json.load(response)
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.connection.close()  # the next request opens another one
            raise NoDecision(f"{path}: {e}") from e
        if response.status in (408, 503):
            raise NoDecision(f"{path}: {answer['detail']}")
        if response.status != 200:  # the request or the token is wrong
            sys.exit(f"{path}: {answer['detail']}")
        return answer

    def retry(self, path, number, fields):
        """Returns weir's answer, and tries again if there is none. A reservation whose answer was lost expires and counts
        as used, so the quota is not exceeded. To commit or cancel the same reservation again changes nothing."""
        failures = 0
        while True:
            try:
                return self.post(path, fields)
            except NoDecision:
                if failures == MAX_FAILURES:
                    raise
                print(f"call {number}: no decision, backing off", flush=True)
                pause = BACKOFF * 2**failures
                time.sleep(pause + random.uniform(0, pause))  # not all at the same moment
                failures += 1

    def reserve(self, number, call):
        """Returns the id of a reservation once the call may be made. With max_wait_ms among the fields, weir answers when
        it is this call's turn, in the order of arrival, if that is within ten seconds."""
        while True:
            answer = self.retry("/v1/reserve", number, {"policy": "provider", "ttl_ms": 30_000, **call})
            if answer["allowed"]:
                return answer["id"]
            if answer["retry_after_ms"] < 0:
                sys.exit(f"call {number}: refused, and waiting cannot help")
            print(f"call {number}: refused, waiting {answer['retry_after_ms']} ms", flush=True)
            time.sleep(answer["retry_after_ms"] / 1000)


weir = Weir(os.environ.get("WEIR_ADDR", "127.0.0.1:8080"), os.environ.get("WEIR_TOKEN"))
for number, call in enumerate(CALLS, 1):
    reservation = weir.reserve(number, call)
    what = f"call {number}: {call['class']}"
    try:
        used = provider(number)
    except ConnectionRefusedError:  # it was not sent, and costs nothing; after other errors it may have cost something
        answer = weir.retry("/v1/cancel", number, {"id": reservation})
        print(f"{what}, not sent, {answer['refunded']} units given back", flush=True)
        continue
    report = {"id": reservation}
    if used is not None:
        report["used"] = used
    answer = weir.retry("/v1/commit", number, report)
    print(f"{what}, done, {answer['refunded']} units given back", flush=True)

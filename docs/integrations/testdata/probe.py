"""Plays the sessions of clients_test.go with redis-py: JSON on standard input and output."""

import json
import sys

import redis


def text(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [text(v) for v in value]
    if isinstance(value, dict):  # what redis-py makes of CLIENT INFO
        return " ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, Exception):
        return {"error": str(value)}
    return value


def attempt(work):
    try:
        return text(work())
    except redis.RedisError as error:
        return text(error)


def subscribe(client):
    with client.pubsub() as pubsub:
        pubsub.subscribe("news")
        return pubsub.get_message(timeout=5)


def play(session):
    client = redis.Redis(
        host=session["host"],
        port=session["port"],
        username=session["user"] or None,
        password=session["password"] or None,
        client_name=session["name"] or None,
        socket_timeout=10,
    )
    replies, reserved = [], None
    for command in session["commands"]:
        command = [reserved if c == "@" else c for c in command]
        if command[0] == "COMMAND":  # redis-py tells by the name what to make of the reply
            command[:2] = [" ".join(command[:2])]
        reply = attempt(lambda: client.execute_command(*command))
        if isinstance(reply, list) and isinstance(reply[0], str):
            reserved = reply[0]
        replies.append(reply)
    pipeline = client.pipeline(transaction=False)
    for command in session["pipeline"]:
        pipeline.execute_command(*command)
    piped = attempt(lambda: pipeline.execute(raise_on_error=False))
    return {"replies": replies, "pipeline": piped, "subscribe": attempt(lambda: subscribe(client))}


json.dump([play(session) for session in json.load(sys.stdin)], sys.stdout)

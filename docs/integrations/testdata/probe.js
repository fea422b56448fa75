// Plays the sessions of clients_test.go with ioredis: JSON on standard input and output.
'use strict';

const fs = require('node:fs');
const Redis = require('ioredis');

const attempt = (promise) => promise.catch((error) => ({ error: error.message }));

async function play(session) {
  const client = new Redis({
    host: session.host,
    port: session.port,
    username: session.user || undefined,
    password: session.password || undefined,
    connectionName: session.name || undefined,
    commandTimeout: 10000,
    maxRetriesPerRequest: 0,
    retryStrategy: null,
  });
  client.on('error', () => {});
  const replies = [];
  let reserved;
  for (const command of session.commands) {
    const reply = await attempt(client.call(...command.map((c) => (c === '@' ? reserved : c))));
    if (Array.isArray(reply) && typeof reply[0] === 'string') reserved = reply[0];
    replies.push(reply);
  }
  const pipeline = client.pipeline();
  for (const command of session.pipeline) pipeline.call(...command);
  const piped = await attempt(pipeline.exec().then((list) => list.map(([error, reply]) => (error ? { error: error.message } : reply))));
  const subscribe = await attempt(client.subscribe('news'));
  client.disconnect();
  return { replies, pipeline: piped, subscribe };
}

async function main() {
  const all = [];
  for (const session of JSON.parse(fs.readFileSync(0, 'utf8'))) all.push(await play(session));
  process.stdout.write(JSON.stringify(all));
}

main();

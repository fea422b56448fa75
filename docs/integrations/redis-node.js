// Asks weir before each of six jobs, through ioredis.
//
//     npm install ioredis
//     weir serve --config weir.yaml
//     node redis-node.js
'use strict';

const Redis = require('ioredis');
const { setTimeout: sleep } = require('node:timers/promises');

const maxFailures = 5;
const backoff = 50; // milliseconds, after the first failure; it doubles with each

const [host, port] = (process.env.WEIR_ADDR || '127.0.0.1:6380').split(':');
const weir = new Redis({
  host,
  port,
  // username: 'checkout', password: process.env.WEIR_TOKEN, // if weir has clients
  commandTimeout: 1000,
  maxRetriesPerRequest: 0, // a check that is sent again counts again
});
weir.on('error', () => {}); // callers get the error, too

// admit returns once the job may begin, and how many more may at once.
async function admit(job) {
  for (let failures = 0; ;) {
    let decision;
    try {
      decision = await weir.call('WEIR.CHECK', 'api', 'alice');
    } catch (error) {
      if (failures === maxFailures) throw error;
      console.log(`job ${job}: no decision, backing off`);
      const pause = backoff * 2 ** failures;
      await sleep(pause * (1 + Math.random())); // not all at the same moment
      failures++;
      continue;
    }
    const [allowed, , remaining, retryMs] = decision;
    if (allowed) return remaining;
    if (retryMs < 0) throw new Error('refused, and waiting cannot help');
    console.log(`job ${job}: refused, waiting ${retryMs} ms`);
    await sleep(retryMs);
  }
}

async function main() {
  for (let job = 1; job <= 6; job++) {
    const left = await admit(job).catch((error) => { throw new Error(`job ${job}: ${error.message}`); });
    console.log(`job ${job}: done, ${left} left`); // here goes the work
  }
}

main()
  .catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  })
  .finally(() => weir.disconnect());

// Asks weir before each of six jobs, by gRPC, with nothing generated.
//
//     npm install @grpc/grpc-js @grpc/proto-loader
//     weir serve --config weir.yaml
//     node grpc-node.js
'use strict';

const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const maxFailures = 5;
const backoff = 50; // milliseconds, after the first failure; it doubles with each

const proto = path.join(__dirname, '../../proto/weir/v1/limiter.proto');
const { weir } = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true, longs: Number, defaults: true }));
const limiter = new weir.v1.LimiterService(process.env.WEIR_ADDR || '127.0.0.1:8081', grpc.credentials.createInsecure());
const call = promisify(limiter.Check.bind(limiter));

// check asks once, and waits no longer than a second. A refusal is an answer, not an error.
function check() {
  const metadata = new grpc.Metadata();
  // metadata.set('authorization', `Bearer ${process.env.WEIR_TOKEN}`); // if weir has clients
  return call({ policy: 'api', key: 'alice' }, metadata, { deadline: Date.now() + 1000 });
}

// admit returns once the job may begin, and how many more may at once.
async function admit(job) {
  for (let failures = 0; ;) {
    let decision;
    try {
      decision = await check();
    } catch (error) {
      if (failures === maxFailures) throw error;
      console.log(`job ${job}: no decision, backing off`);
      const pause = backoff * 2 ** failures;
      await sleep(pause * (1 + Math.random())); // not all at the same moment
      failures++;
      continue;
    }
    if (decision.allowed) return decision.remaining;
    if (decision.retry_after_ms < 0) throw new Error('refused, and waiting cannot help');
    console.log(`job ${job}: refused, waiting ${decision.retry_after_ms} ms`);
    await sleep(decision.retry_after_ms);
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
  .finally(() => limiter.close());

// What a program with viem does, through the URL of the first argument. The input has the key of a rich account and
// the code of a contract; the output has what came back.
"use strict";
const { createPublicClient, createWalletClient, http, parseAbi } = require("viem");
const { privateKeyToAccount } = require("viem/accounts");
const { anvil } = require("viem/chains");

const abi = parseAbi([
  "function store(uint256)",
  "function load() view returns (uint256)",
  "event Stored(uint256)",
]);
const pollingInterval = 20;

async function all(url, input) {
  const account = privateKeyToAccount(input.key);
  const client = createPublicClient({ chain: anvil, transport: http(url), pollingInterval });
  const wallet = createWalletClient({ account, chain: anvil, transport: http(url), pollingInterval });
  const out = { chain: await client.getChainId(), first: await client.getBlockNumber({ cacheTime: 0 }) };

  const blocks = await client.createBlockFilter();
  const before = await client.getBalance({ address: input.poor });
  const paid = await wallet.sendTransaction({ to: input.poor, value: 12345n });
  out.paid = (await client.waitForTransactionReceipt({ hash: paid })).status;
  out.grown = (await client.getBalance({ address: input.poor })) - before;
  out.blocks = (await client.getFilterChanges({ filter: blocks })).length;

  const created = await wallet.deployContract({ abi, bytecode: input.code });
  const address = (await client.waitForTransactionReceipt({ hash: created })).contractAddress;
  const events = await client.createContractEventFilter({ abi, address });
  const stored = await wallet.writeContract({ abi, address, functionName: "store", args: [42n] });
  const receipt = await client.waitForTransactionReceipt({ hash: stored });
  out.stored = receipt.status;
  out.loaded = await client.readContract({ abi, address, functionName: "load" });
  out.events = (await client.getFilterChanges({ filter: events })).map((e) => e.args[0]);
  out.moreEvents = (await client.getFilterChanges({ filter: events })).length;
  out.logs = (await client.getContractEvents({ abi, address, fromBlock: 0n })).length;
  out.removed = await client.uninstallFilter({ filter: events });

  // Calls of one tick become one batch.
  const batching = createPublicClient({ chain: anvil, transport: http(url, { batch: true }), pollingInterval });
  const load = { abi, address, functionName: "load" };
  for (let i = 0; i < 4; i++) {
    out.batch = await Promise.all([
      batching.getChainId(),
      batching.getBlock({ blockNumber: receipt.blockNumber }).then((b) => b.hash === receipt.blockHash),
      batching.getBlock({ blockNumber: 1000n }).catch((e) => e.name),
      batching.readContract(load),
      batching.request({ method: "eth_noSuchMethod" }).catch((e) => e.name),
      ...Array.from({ length: 20 }, () => batching.getBalance({ address: input.poor }).then((b) => b === before + 12345n)),
    ]);
  }
  out.multicall = await client.multicall({ deployless: true, allowFailure: false, contracts: [load, load, load] });
  return out;
}

// limited returns a client, and a list of the times after which refused requests may be made again.
function limited(url, options) {
  const refusals = [];
  const onFetchResponse = (r) => r.status === 429 && refusals.push(r.headers.get("Retry-After"));
  return { refusals, client: createPublicClient({ chain: anvil, transport: http(url, { ...options, onFetchResponse }) }) };
}

const chainIds = (client, n) => Promise.all(Array.from({ length: n }, () => client.request({ method: "eth_chainId" }, { dedupe: false })));

// refused makes more calls at once than the route takes.
async function refused(url) {
  const { client, refusals } = limited(url, {});
  return { chains: await chainIds(client, 6), refusals };
}

// refusedBatch makes two batches, each of as many calls as the route takes.
async function refusedBatch(url) {
  const { client, refusals } = limited(url, { batch: true });
  return { chains: [...(await chainIds(client, 3)), ...(await chainIds(client, 3))], refusals };
}

async function main() {
  const [, , what, url] = process.argv;
  let input = "";
  for await (const chunk of process.stdin) input += chunk;
  const out = await { all, refused, refusedBatch }[what](url, JSON.parse(input));
  console.log(JSON.stringify(out, (_, v) => (typeof v === "bigint" ? Number(v) : v)));
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
